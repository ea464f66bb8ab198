// In the place of TensorFlow and of the library that lowers its graphs: what the check of their
// versions reads. FAKE_VERSION: of TensorFlow; FAKE_INTERFACE: of the plugin that it belongs to.
extern "C" {

const char* TF_Version() { return FAKE_VERSION; }

const char* tpuboard_tf_version() { return FAKE_VERSION; }

const char* tpuboard_tf_interface() { return FAKE_INTERFACE; }

}  // extern "C"
