// Runs Perfetto's trace processor (WebAssembly, as its user interface brings it) without a browser:
// a stream of requests in, the stream of its replies out.
//   node trace_processor.js FOLDER_OF_THE_INTERFACE REQUESTS REPLIES
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, requests, replies] = process.argv.slice(2);
const answered = [];
const port = { postMessage: (bytes) => answered.push(Buffer.from(bytes)) };
const context = {
  console: { log() {}, warn() {}, error() {} },
  WebAssembly, TypeError, TextDecoder, TextEncoder, URL, performance, Uint8Array,
  setTimeout, clearTimeout, queueMicrotask,
  location: { href: "http://localhost/engine_bundle.js" },
  WorkerGlobalScope: class {},
  // How the bundle loads the module, named by the last part of its address.
  XMLHttpRequest: class {
    open(_method, url) {
      this.file = path.join(folder, path.basename(url));
    }
    send() {
      this.response = fs.readFileSync(this.file);
    }
  },
};
context.self = context;
context.globalThis = context;
vm.createContext(context);
process.on("uncaughtException", (error) => {  // else Node shows the whole bundle
  process.stderr.write(`${error}\n`, () => process.exit(1));
});
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), context);
context.onmessage({ data: port });

// The module is loaded by now; its initialisation is a promise that is about to be kept.
setTimeout(() => {
  port.onmessage({ data: new Uint8Array(fs.readFileSync(requests)) });
  fs.writeFileSync(replies, Buffer.concat(answered));
  process.exit(0);
}, 0);
