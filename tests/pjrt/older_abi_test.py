"""Programs of 2024 on the plugin: it takes the argument structs in the sizes that PJRT 0.54 has.

The plugin is called through its table, each function with zeros behind `struct_size`. What it answers must not be about
the size, and it must not write behind the struct. PyTorch/XLA 2.5 is built with that version.
"""

from __future__ import annotations

import ctypes
import os
import sys

from pypjrt._abi import pjrt_0_114 as table

# struct_size by function, without PJRT_ and _Args.
_TEXT = """
    Error_Destroy:24 Error_Message:40 Error_GetCode:28 Plugin_Initialize:16 Plugin_Attributes:24
    Event_Destroy:24 Event_IsReady:25 Event_Error:24 Event_Await:24 Event_OnReady:40 KeyValueGetCallback:80
    KeyValuePutCallback:64 Client_Create:72 Client_Destroy:24 Client_PlatformName:40 Client_ProcessIndex:28
    Client_PlatformVersion:40 Client_TopologyDescription:32 Client_Devices:40 Client_AddressableDevices:40
    Client_LookupDevice:40 Client_LookupAddressableDevice:40 Client_AddressableMemories:40 Client_Compile:56
    Client_DefaultDeviceAssignment:48 Client_BufferFromHostBuffer:120 Client_CreateViewOfDeviceBuffer:104
    DeviceDescription_Id:28 DeviceDescription_ProcessIndex:28 DeviceDescription_Attributes:40
    DeviceDescription_Kind:40 DeviceDescription_DebugString:40 DeviceDescription_ToString:40
    Device_GetDescription:32 Device_IsAddressable:25 Device_LocalHardwareId:28 Device_AddressableMemories:40
    Device_DefaultMemory:32 Device_MemoryStats:185 Memory_Id:28 Memory_Kind:40 Memory_Kind_Id:28
    Memory_DebugString:40 Memory_ToString:40 Memory_AddressableByDevices:40 ExecuteContext_Create:24
    ExecuteContext_Destroy:24 Executable_Destroy:24 LoadedExecutable_Destroy:24
    LoadedExecutable_GetExecutable:32 Executable_Name:40 Executable_NumReplicas:32 Executable_NumPartitions:32
    LoadedExecutable_AddressableDevices:40 Executable_OptimizedProgram:32 LoadedExecutable_Delete:24
    LoadedExecutable_IsDeleted:25 LoadedExecutable_Execute:80 Executable_NumOutputs:32
    Executable_SizeOfGeneratedCodeInBytes:32 Executable_Fingerprint:40 Executable_GetCostAnalysis:40
    Executable_GetCompiledMemoryStats:104 Executable_OutputElementTypes:40 Executable_OutputDimensions:48
    Executable_OutputMemoryKinds:48 Executable_Serialize:56 Executable_DeserializeAndLoad:48
    LoadedExecutable_Fingerprint:40 Buffer_Destroy:24 Buffer_ElementType:28 Buffer_Dimensions:40
    Buffer_UnpaddedDimensions:40 Buffer_DynamicDimensionIndices:40 Buffer_GetMemoryLayout:104
    Buffer_ToHostBuffer:56 Buffer_OnDeviceSizeInBytes:32 Buffer_Delete:24 Buffer_IsDeleted:25
    Buffer_CopyToDevice:40 Buffer_CopyToMemory:40 Buffer_IsOnCpu:25 Buffer_Device:32 Buffer_Memory:32
    Buffer_ReadyEvent:32 Buffer_UnsafePointer:32 Buffer_IncreaseExternalReferenceCount:24
    Buffer_DecreaseExternalReferenceCount:24 Buffer_OpaqueDeviceMemoryDataPointer:32
    CopyToDeviceStream_Destroy:24 CopyToDeviceStream_AddChunk:40 CopyToDeviceStream_TotalBytes:32
    CopyToDeviceStream_GranuleSize:32 CopyToDeviceStream_CurrentBytes:32 TopologyDescription_Create:56
    TopologyDescription_Destroy:24 TopologyDescription_PlatformVersion:40 TopologyDescription_PlatformName:40
    TopologyDescription_GetDeviceDescriptions:40 TopologyDescription_Serialize:56
    TopologyDescription_Attributes:40 Compile:64
"""
SIZES = {name: int(size) for name, _, size in (entry.partition(":") for entry in _TEXT.split())}
ROOM, GUARD = 512, 0xA5
# Its struct_size left out the last field of the struct.
REAL = {"Plugin_Attributes": 32}
# Their result is an error only when an error is given.
VOID = ("Error_Destroy", "Error_Message")


def function(api: int, name: str) -> ctypes._CFuncPtr:
    address = ctypes.c_void_p.from_address(api + table.VTABLE_OFFSET + 8 * table.SLOT[name]).value
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)


def message_of(api: int, error: int) -> str:
    arguments = (ctypes.c_size_t * 5)(40, 0, error, 0, 0)
    function(api, "PJRT_Error_Message")(ctypes.addressof(arguments))
    return ctypes.string_at(arguments[3], arguments[4]).decode()


def main() -> int:
    """Prints what the plugin refuses or spoils."""
    library = ctypes.CDLL(os.environ["TPU_LIBRARY_PATH"])
    library.GetPjrtApi.restype = ctypes.c_void_p
    api = library.GetPjrtApi()
    errors = []
    for name, size in SIZES.items():
        if name in VOID or f"PJRT_{name}" not in table.SLOT:
            continue
        real = (REAL.get(name, size) + 7) // 8 * 8
        arguments = (ctypes.c_ubyte * ROOM)(*([0] * real), *([GUARD] * (ROOM - real)))
        ctypes.c_size_t.from_buffer(arguments).value = size
        error = function(api, f"PJRT_{name}")(ctypes.addressof(arguments))
        if error and "struct_size" in message_of(api, error):
            errors.append(message_of(api, error))
        if any(byte != GUARD for byte in arguments[real:]):
            errors.append(f"PJRT_{name} wrote behind a struct of {real} bytes")
        if name == "Plugin_Attributes" and (error or ctypes.c_size_t.from_buffer(arguments, 24).value == 0):
            errors.append("PJRT_Plugin_Attributes gave no number of attributes")
    print("\n".join(errors) if errors else f"{len(SIZES)} structs of PJRT 0.54 are taken")
    return 1 if errors or len(SIZES) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
