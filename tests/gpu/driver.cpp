// A GPU that computes nothing: what CUDA's runtime and driver, cuBLAS, cuDNN, NCCL and NVML answer to a process that
// trains on a GPU, for machines without one. run.sh adds the rest of their functions, which do nothing and succeed.
//
// Memory is handed out up to the GPU's, without CUDA's own share of it, and takes none of the host's until it is
// written to. Kernels, products and convolutions are accepted and left out, so times mean nothing. What was copied to
// the GPU or filled with floats, up to KEPT bytes, reads back, whatever a kernel should have written there since; all
// else reads as zeros, which take none of the host's memory where it is copied to.
//
// STAND_IN is the GPU: name, bytes of memory, capability, multiprocessors, and how many there are, 1 if it does not say.
// Its clocks, bus and cache are an H200's. A process has the memory of one of them, as a rank takes no more. Of what ranks
// exchange only what one broadcasts arrives, by files in STAND_IN_EXCHANGE: from all others each gets what it sent them.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudnn_version.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>

namespace {

constexpr size_t KEPT = 65536;

struct Gpu {
    std::string name = "NVIDIA H200";
    size_t bytes = 150754820096;
    int major = 9, minor = 0, multiprocessors = 132, count = 1;

    Gpu() {
        const char* given = std::getenv("STAND_IN");
        if (!given) return;
        std::stringstream fields(given);
        std::string memory, capability, units, how_many;
        std::getline(fields, name, ',');
        std::getline(fields, memory, ',');
        std::getline(fields, capability, ',');
        std::getline(fields, units, ',');
        if (std::getline(fields, how_many, ',')) count = std::stoi(how_many);
        bytes = std::stoull(memory);
        major = std::stoi(capability);
        minor = std::stoi(capability.substr(capability.find('.') + 1));
        multiprocessors = std::stoi(units);
    }
};

const Gpu& gpu() {
    static Gpu one;
    return one;
}

int visible() {
    static const char* asked = std::getenv("CUDA_VISIBLE_DEVICES");
    if (!asked) return gpu().count;
    return *asked ? 1 + std::count(asked, asked + std::strlen(asked), ',') : 0;
}
bool hidden() { return visible() == 0; }

thread_local int current = 0;  // device of this thread

std::recursive_mutex lock;
size_t used = 0;
std::map<char*, size_t> on_device, on_host;       // beginning and bytes of every allocation
std::unordered_map<const void*, size_t> written;  // what reads back: beginning and bytes
std::set<const void*> fills;                      // kernels that fill with floats
long launched = 0;                                // kernels, products and convolutions; see stand_in_launches

char* pages(size_t bytes) {
    void* found = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? nullptr : static_cast<char*>(found);
}

bool within(const std::map<char*, size_t>& allocations, const void* address) {
    auto after = allocations.upper_bound(static_cast<char*>(const_cast<void*>(address)));
    if (after == allocations.begin()) return false;
    auto [begin, bytes] = *std::prev(after);
    return static_cast<const char*>(address) < begin + bytes;
}

void release(std::map<char*, size_t>& allocations, void* address) {
    auto found = allocations.find(static_cast<char*>(address));
    if (found == allocations.end()) return;
    if (&allocations == &on_device) used -= found->second;
    munmap(found->first, std::max<size_t>(found->second, 1));
    allocations.erase(found);
}

// Has memory of the host read as zeros. Whole pages go back to the system, and take none of it until written to.
void clear(void* to, size_t bytes) {
    constexpr uintptr_t PAGE = 4096, FEW = 1 << 20;
    const auto begin = reinterpret_cast<uintptr_t>(to), end = begin + bytes;
    const uintptr_t first = (begin + PAGE - 1) / PAGE * PAGE, last = end / PAGE * PAGE;
    char* const whole = reinterpret_cast<char*>(first);
    if (bytes < FEW || madvise(whole, last - first, MADV_DONTNEED) || *whole) {  // shared memory keeps its content
        std::memset(to, 0, bytes);
        return;
    }
    std::memset(to, 0, first - begin);
    std::memset(reinterpret_cast<char*>(last), 0, end - last);
}

void copy(void* to, const void* from, size_t bytes) {
    std::lock_guard held(lock);
    const bool to_device = within(on_device, to), from_device = within(on_device, from);
    auto kept = written.find(from);
    const bool known = !from_device || (kept != written.end() && kept->second == bytes);
    if (to_device && (bytes > KEPT || !known)) {
        written.erase(to);
    } else if (known) {
        std::memmove(to, from, bytes);
        if (to_device) written[to] = bytes;
    } else {
        clear(to, bytes);
    }
}

// KiB of shared memory of a multiprocessor (CUDA C++ Programming Guide, compute capabilities): Triton's kernels are held
// to one less, which Volta and Turing do not take off.
int shared() {
    switch (10 * gpu().major + gpu().minor) {
        case 70: return 97;
        case 75: return 65;
        case 80: return 164;
        case 90:
        case 100: return 228;
        default: return 100;
    }
}

// Threads of a multiprocessor, by the same guide.
int threads() {
    if (gpu().major == 7 && gpu().minor == 5) return 1024;
    return gpu().major == 12 || (gpu().major == 8 && gpu().minor) ? 1536 : 2048;
}

int attribute(int which) {
    switch (which) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 1024 * shared() - 1024;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 1024 * shared();
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1980000;
        case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 2619000;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 5120;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 50 << 20;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return threads();
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return gpu().multiprocessors;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return gpu().major;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return gpu().minor;
        default: return 0;
    }
}

void* handle() { return std::calloc(1, 1 << 16); }
CUresult unsupported() { return CUDA_ERROR_NOT_SUPPORTED; }
double now() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

extern "C" {

// Devices

cudaError_t cudaGetDeviceCount(int* count) {
    return *count = visible(), hidden() ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = current, hidden() ? cudaErrorNoDevice : cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
    if (device >= visible()) return hidden() ? cudaErrorNoDevice : cudaErrorInvalidDevice;
    return current = device, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
    return *value = attribute(which), cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDA_VERSION, cudaSuccess; }
CUresult cuDriverGetVersion(int* version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
    return std::snprintf(id, bytes, "0000:%02d:00.0", device), cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "refused";
}
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    if (hidden()) return cudaErrorNoDevice;
    std::memset(properties, 0, sizeof *properties);
    std::strncpy(properties->name, gpu().name.c_str(), sizeof properties->name - 1);
    properties->totalGlobalMem = gpu().bytes;
    properties->major = gpu().major;
    properties->minor = gpu().minor;
    properties->multiProcessorCount = gpu().multiprocessors;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    for (int axis = 0; axis < 3; ++axis) {
        properties->maxThreadsDim[axis] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis);
        properties->maxGridSize[axis] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis);
    }
    properties->sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    properties->sharedMemPerBlockOptin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    properties->sharedMemPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->l2CacheSize = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    properties->maxThreadsPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    properties->maxBlocksPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
#if CUDART_VERSION < 13000
    properties->clockRate = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    properties->memoryClockRate = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
#endif
    properties->memoryBusWidth = attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** found, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* how) {
    *found = dlsym(RTLD_DEFAULT, symbol);
    if (!*found) *found = reinterpret_cast<void*>(unsupported);
    if (how) *how = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** found, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* how) {
    return cudaGetDriverEntryPointByVersion(symbol, found, CUDA_VERSION, flags, how);
}

// Memory

cudaError_t cudaMalloc(void** address, size_t bytes) {
    std::lock_guard held(lock);
    if (used + bytes > gpu().bytes) return cudaErrorMemoryAllocation;
    char* found = pages(bytes);
    if (!found) return cudaErrorMemoryAllocation;
    used += bytes;
    on_device[found] = bytes;
    *address = found;
    return cudaSuccess;
}
cudaError_t cudaFree(void* address) {
    std::lock_guard held(lock);
    return release(on_device, address), cudaSuccess;
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
    std::lock_guard held(lock);
    char* found = pages(bytes);
    if (!found) return cudaErrorMemoryAllocation;
    on_host[found] = bytes;
    *address = found;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* address) {
    std::lock_guard held(lock);
    return release(on_host, address), cudaSuccess;
}
cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
    std::lock_guard held(lock);
    return on_host[static_cast<char*>(address)] = bytes, cudaSuccess;
}
cudaError_t cudaHostUnregister(void* address) {
    std::lock_guard held(lock);
    return on_host.erase(static_cast<char*>(address)), cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* left, size_t* total) {
    std::lock_guard held(lock);
    return *total = gpu().bytes, *left = gpu().bytes - used, cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    std::lock_guard held(lock);
    std::memset(attributes, 0, sizeof *attributes);
    attributes->type = within(on_device, address) ? cudaMemoryTypeDevice
                       : within(on_host, address) ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeUnregistered;
    attributes->device = attributes->type == cudaMemoryTypeUnregistered ? -1 : current;
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    return copy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    return copy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemset(void* to, int, size_t) {
    std::lock_guard held(lock);
    return written.erase(to), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) { return cudaMemset(to, value, bytes); }
cudaError_t cudaGetSymbolAddress(void** address, const void*) {
    static char symbol[1 << 20];
    return *address = symbol, cudaSuccess;
}

// Streams, events, which are done at once

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return *stream = static_cast<cudaStream_t>(handle()), cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { return *priority = 0, cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
#if CUDART_VERSION < 13000
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*,
                                        cudaGraph_t*, const cudaGraphNode_t**, size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
#endif
    return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = static_cast<cudaEvent_t>(handle()), cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return std::free(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    return *reinterpret_cast<double*>(event) = now(), cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}
// Slowly, as steps that no real GPU could be so fast at are refused as measurements.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    *milliseconds = static_cast<float>(100 * (*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(begin)));
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) { return function(data), cudaSuccess; }

// Kernels

void** __cudaRegisterFatBinary(void*) { return static_cast<void**>(handle()); }
char __cudaInitModule(void**) { return 1; }
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t* shared, void* stream) {
    return *shared = 0, *static_cast<void**>(stream) = nullptr, cudaSuccess;
}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
    const std::string kernel = name;
    if (kernel.find("vectorized_elementwise_kernel") != std::string::npos &&
        kernel.find("FillFunctorIfE") != std::string::npos) {
        fills.insert(function);
    }
}
// How many were launched since it was last asked: for traced.py.
long stand_in_launches() {
    std::lock_guard held(lock);
    return std::exchange(launched, 0);
}
int launch() {
    std::lock_guard held(lock);
    return ++launched, 0;
}
cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** arguments, size_t, cudaStream_t) {
    launch();
    if (fills.count(function)) {
        std::lock_guard held(lock);
        const size_t count = *static_cast<int*>(arguments[0]);
        float* to = *static_cast<float**>(arguments[2]);
        written.erase(to);
        if (count * sizeof *to <= KEPT) {
            std::fill_n(to, count, *static_cast<float*>(arguments[1]));
            written[to] = count * sizeof *to;
        }
    }
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    return *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function)), cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t bytes,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, bytes, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
    return static_cast<cudaError_t>(launch());
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    std::memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = 10 * gpu().major + gpu().minor;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
    return *blocks = 1, cudaSuccess;
}

// The driver, as Triton asks it

CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
    return *value = attribute(which), CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = reinterpret_cast<CUcontext>(&lock), CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return cuCtxGetCurrent(context); }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
    return *flags = 0, *active = 1, CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void*) {
    return *module = static_cast<CUmodule>(handle()), CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char*) {
    return *function = reinterpret_cast<CUfunction>(module), CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction) {
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "refused", CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
    if (which != CU_POINTER_ATTRIBUTE_DEVICE_POINTER) return CUDA_ERROR_INVALID_VALUE;
    return *static_cast<CUdeviceptr*>(data) = address, CUDA_SUCCESS;
}

// cuBLAS

int cublasCreate_v2(void** made) { return *made = handle(), 0; }
int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }
int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
#define LAUNCHES(what) \
    int what() { return launch(); }
LAUNCHES(cublasGemmEx)
LAUNCHES(cublasGemmStridedBatchedEx)
LAUNCHES(cublasSgemm_v2)
LAUNCHES(cublasSgemmStridedBatched)
LAUNCHES(cublasLtMatmul)
int cublasLtMatmulDescCreate(void** made, int, int) { return *made = handle(), 0; }
int cublasLtMatmulPreferenceCreate(void** made) { return *made = handle(), 0; }
int cublasLtMatrixLayoutCreate(void** made, int, uint64_t, uint64_t, int64_t) { return *made = handle(), 0; }
int cublasLtMatmulDescDestroy(void* made) { return std::free(made), 0; }
int cublasLtMatmulPreferenceDestroy(void* made) { return std::free(made), 0; }
int cublasLtMatrixLayoutDestroy(void* made) { return std::free(made), 0; }
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* results, int* count) {
    std::memset(results, 0, 96);  // one cublasLtMatmulHeuristicResult_t
    return *count = 1, 0;
}

// cuDNN, by its older interface: TORCH_CUDNN_V8_API_DISABLED=1

struct Performance {  // cudnnConvolutionFwdAlgoPerf_t and its two like
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};
size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }
const char* cudnnGetErrorString(int) { return "refused"; }
int cudnnGetProperty(int which, int* value) {
    return *value = which == 0 ? CUDNN_MAJOR : which == 1 ? CUDNN_MINOR : CUDNN_PATCHLEVEL, 0;
}
#define CUDNN_MAKES(what) \
    int cudnn##what(void** made) { return *made = handle(), 0; }
CUDNN_MAKES(Create)
CUDNN_MAKES(CreateTensorDescriptor)
CUDNN_MAKES(CreateFilterDescriptor)
CUDNN_MAKES(CreateConvolutionDescriptor)
#define CUDNN_FREES(what) \
    int cudnn##what(void* made) { return std::free(made), 0; }
CUDNN_FREES(DestroyTensorDescriptor)
CUDNN_FREES(DestroyFilterDescriptor)
CUDNN_FREES(DestroyConvolutionDescriptor)
LAUNCHES(cudnnConvolutionForward)
LAUNCHES(cudnnConvolutionBackwardData)
LAUNCHES(cudnnConvolutionBackwardFilter)
#define CUDNN_CHOOSES(what)                                                                               \
    int cudnnGetConvolution##what##Algorithm_v7(void*, void*, void*, void*, void*, int, int* count,       \
                                                Performance* found) {                                     \
        *found = {1, 0, 0, 0, 0, 3, {}}; /* CUDNN_FMA_MATH */                                             \
        return *count = 1, 0;                                                                             \
    }                                                                                                     \
    int cudnnGetConvolution##what##WorkspaceSize(void*, void*, void*, void*, void*, int, size_t* bytes) { \
        return *bytes = 0, 0;                                                                             \
    }
CUDNN_CHOOSES(Forward)
CUDNN_CHOOSES(BackwardData)
CUDNN_CHOOSES(BackwardFilter)

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*,
                                                             size_t* bytes) {
    return *bytes = 0, 0;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*, void*, void*,
                                                      size_t* bytes) {
    return *bytes = 0, 0;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, size_t* bytes) {
    return *bytes = 0, 0;
}

// NCCL

struct Id {
    char bytes[128];
};
struct Communicator {
    int ranks, rank;
    std::string name;
    int splits = 0, broadcasts = 0;  // which all ranks count alike
};
int ncclGetUniqueId(Id* id) {
    static int made = 0;
    return std::snprintf(id->bytes, sizeof id->bytes, "%d-%d", getpid(), made++), 0;
}
const char* ncclGetErrorString(int) { return "refused"; }
const char* ncclGetLastError(void*) { return ""; }
int ncclGetVersion(int* version) { return *version = 22705, 0; }
int ncclCommInitRank(Communicator** made, int ranks, Id id, int rank) {
    return *made = new Communicator{ranks, rank, id.bytes}, 0;
}
int ncclCommInitRankConfig(Communicator** made, int ranks, Id id, int rank, void*) {
    return ncclCommInitRank(made, ranks, id, rank);
}
int ncclCommSplit(Communicator* of, int, int, Communicator** made, void*) {
    return *made = new Communicator{of->ranks, of->rank, of->name + "-" + std::to_string(of->splits++)}, 0;
}
int ncclCommCount(Communicator* of, int* ranks) { return *ranks = of->ranks, 0; }
int ncclCommUserRank(Communicator* of, int* rank) { return *rank = of->rank, 0; }
int ncclCommGetAsyncError(void*, int* error) { return *error = 0; }

static size_t bytes_of(size_t count, int type) {
    static const int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // of each ncclDataType_t
    return count * bytes[type];
}
static int exchange(const void* from, void* to, size_t bytes) {
    launch();
    if (from != to) copy(to, from, bytes);
    return 0;
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int, void*, void*) {
    return exchange(from, to, bytes_of(count, type));
}
int ncclReduce(const void* from, void* to, size_t count, int type, int, int, void*, void*) {
    return exchange(from, to, bytes_of(count, type));
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Communicator* among, void*) {
    const size_t bytes = bytes_of(count, type);
    const std::string name = among->name + "-" + std::to_string(among->broadcasts++);
    const std::filesystem::path file = std::filesystem::path(std::getenv("STAND_IN_EXCHANGE")) / name;
    if (among->rank == root) {
        std::lock_guard held(lock);
        auto kept = written.find(from);
        const bool known = kept != written.end() && kept->second == bytes;
        std::ofstream(file.string() + ".part").write(static_cast<const char*>(from), known ? bytes : 0);
        std::filesystem::rename(file.string() + ".part", file);
        return exchange(from, to, bytes);
    }
    for (int waited = 0; !std::filesystem::exists(file); ++waited) {
        if (waited == 60000) return 6;  // ncclRemoteError
        usleep(1000);
    }
    std::lock_guard held(lock);
    written.erase(to);
    if (std::filesystem::file_size(file) == bytes) {
        std::ifstream(file).read(static_cast<char*>(to), bytes);
        written[to] = bytes;
    }
    return launch();
}
int ncclBcast(void* at, size_t count, int type, int root, Communicator* among, void* stream) {
    return ncclBroadcast(at, at, count, type, root, among, stream);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int, Communicator* among, void*) {
    const size_t bytes = bytes_of(count, type);
    return exchange(static_cast<const char*>(from) + among->rank * bytes, to, bytes);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, Communicator* among, void*) {
    const size_t bytes = bytes_of(count, type);
    for (int rank = among->ranks - 1; rank >= 0; --rank) exchange(from, static_cast<char*>(to) + rank * bytes, bytes);
    return 0;
}

// NVML

int nvmlInit_v2() { return 0; }
int nvmlInit() { return 0; }
int nvmlInitWithFlags(unsigned) { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Not Supported"; }
int nvmlSystemGetDriverVersion(char* version, unsigned bytes) {
    return std::strncpy(version, "570.0 (stand-in)", bytes), 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = CUDA_VERSION, 0; }
static char handles[64];  // the address of each is a GPU's
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = gpu().count, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    return *device = handles + index, index < unsigned(gpu().count) ? 0 : 2;  // NVML_ERROR_INVALID_ARGUMENT
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
    return nvmlDeviceGetHandleByIndex_v2(std::atoi(std::strchr(id, ':') + 1), device);
}
int nvmlDeviceGetHandleByUUID(const char* id, void** device) {
    return nvmlDeviceGetHandleByIndex_v2(std::atoi(std::strrchr(id, '-') + 1), device);
}
int nvmlDeviceGetName(void*, char* name, unsigned bytes) { return std::strncpy(name, gpu().name.c_str(), bytes), 0; }
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
    const int index = static_cast<char*>(device) - handles;
    return std::snprintf(uuid, bytes, "GPU-00000000-0000-0000-0000-%012d", index), 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {  // total, free, used
    return memory[0] = memory[1] = gpu().bytes, memory[2] = 0, 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
    return *major = gpu().major, *minor = gpu().minor, 0;
}
int nvmlDeviceGetClockInfo(void*, int, unsigned* clock) { return *clock = 1980, 0; }
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 100000, 0; }
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {  // 100 W since the machine started
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return *millijoules = 100 * std::chrono::duration_cast<std::chrono::milliseconds>(since).count(), 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return *celsius = 30, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) { return *reasons = 0, 0; }
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) { return *count = 0, 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void*) { return *count = 0, 0; }
#define NVML_LACKS(what) \
    int nvmlDeviceGet##what() { return 3; }
NVML_LACKS(MigMode)
NVML_LACKS(GpuFabricInfoV)
NVML_LACKS(NvLinkRemoteDeviceType)
NVML_LACKS(NvLinkRemotePciInfo_v2)

}  // extern "C"
