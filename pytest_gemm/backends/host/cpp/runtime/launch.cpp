// Launching a kernel, timing it, and getting out alive when it goes wrong.
//
// Signal handlers, the alternate stack and the floating-point mode are set for the launch and
// put back after it, so that Python's own (faulthandler's above all) are in force in between.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "runtime.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace pytest_gemm {

// Filled in by Python: see launch.py.
struct Launch {
    std::uint32_t grid[3];
    std::uint32_t block[3];
    std::uint32_t shared_bytes;
    std::uint32_t launches;
    double timeout;  // seconds of one launch, by the wall clock
    void** arguments;
    std::uint32_t allow_different_barriers;  // threads may pass a barrier at different lines
};

namespace {

const int timer_signal = SIGRTMIN + 10;
const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
constexpr int fault_signal_count = sizeof fault_signals / sizeof *fault_signals;
struct sigaction old_fault_actions[fault_signal_count];
struct sigaction old_timer_action, old_interrupt_action;

volatile sig_atomic_t running;
pthread_t launcher;
sigjmp_buf give_up;
Report* report;

timer_t timer;
double timeout;
volatile double launch_start;

volatile sig_atomic_t uninterruptible;
volatile sig_atomic_t postponed;  // a Fault

double seconds(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// ---- the block's dynamic shared memory ----------------------------------------------------

constexpr std::size_t max_shared_bytes = 227 * 1024;
unsigned char* shared_end;  // a guard page follows
unsigned char* shared_arena;
std::size_t dynamic_shared_bytes;

bool place_shared_memory(std::size_t bytes) {
    if (!shared_arena) {
        const auto page = std::size_t(sysconf(_SC_PAGESIZE));
        const std::size_t size = (max_shared_bytes + page - 1) / page * page;
        void* memory = mmap(nullptr, size + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return false;
        shared_arena = static_cast<unsigned char*>(memory);
        shared_end = shared_arena + size;
        if (mprotect(shared_end, page, PROT_NONE) != 0) return false;
    }
    dynamic_shared_bytes = bytes;
    dynamic_shared_memory = shared_end - (bytes + 15) / 16 * 16;
    return true;
}

// Shared memory is not initialised: a kernel that reads before it writes meets NaN.
void poison_shared_memory(const Kernel& kernel) {
    for (const SharedVariable* v = *kernel.shared_variables; v; v = v->next)
        std::memset(v->address, 0xff, v->size);
    if (dynamic_shared_bytes) std::memset(dynamic_shared_memory, 0xff, dynamic_shared_bytes);
}

// ---- floating-point mode: subnormals are zero, as in CuPy's kernels (-ftz=true) ------------

#if defined(__x86_64__)
using FloatMode = unsigned int;
FloatMode float_mode() { return __builtin_ia32_stmxcsr(); }
void set_float_mode(FloatMode mode) { __builtin_ia32_ldmxcsr(mode); }
constexpr FloatMode flush_subnormals = 0x8040;
#elif defined(__aarch64__)
using FloatMode = std::uint64_t;
FloatMode float_mode() {
    FloatMode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
void set_float_mode(FloatMode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
constexpr FloatMode flush_subnormals = 1 << 24;
#endif

// ---- faults -------------------------------------------------------------------------------

void copy_text(char (&target)[512], const char* text) {
    std::strncpy(target, text ? text : "", sizeof target - 1);
}

[[noreturn]] void leave() {
    running = 0;
    siglongjmp(give_up, 1);
}

void report_fault(Fault fault) {
    report->fault = fault;
    report->block = blockIdx;
    report->thread = threadIdx;
    report->is_write = -1;
}

struct Context {
    std::uintptr_t pc, stack_pointer;
    bool general_protection;
    int is_write;
};

Context read_context(const void* raw) {
    const auto& machine = static_cast<const ucontext_t*>(raw)->uc_mcontext;
#if defined(__x86_64__)
    // Trap 13: an address that is not canonical, or an aligned vector access that is not aligned.
    return {std::uintptr_t(machine.gregs[REG_RIP]), std::uintptr_t(machine.gregs[REG_RSP]),
            machine.gregs[REG_TRAPNO] == 13,
            machine.gregs[REG_TRAPNO] == 14 ? int(machine.gregs[REG_ERR] >> 1 & 1) : -1};
#elif defined(__aarch64__)
    return {std::uintptr_t(machine.pc), std::uintptr_t(machine.sp), false, -1};
#endif
}

void restore_old_action(int signal) {
    for (int i = 0; i < fault_signal_count; ++i)
        if (fault_signals[i] == signal) sigaction(signal, &old_fault_actions[i], nullptr);
}

void on_fault(int signal, siginfo_t* info, void* raw_context) {
    if (!running || !pthread_equal(pthread_self(), launcher)) {
        restore_old_action(signal);  // not ours: let it happen again for whoever was there before
        return;
    }
    const Context context = read_context(raw_context);
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const std::uintptr_t from_stack = context.stack_pointer - address + 4096;
    if (checking) check_note_place(context.pc);
    if (signal == SIGFPE) {
        report_fault(Fault::division_by_zero);
    } else if (signal == SIGILL || signal == SIGTRAP) {
        report_fault(Fault::trap);
    } else if (context.general_protection || (signal == SIGBUS && info->si_code == BUS_ADRALN)) {
        report_fault(Fault::misaligned);
    } else if (is_stack_guard(address) || from_stack < 64 * 1024) {
        report_fault(Fault::stack_overflow);
    } else {
        report_fault(Fault::out_of_bounds);
        report->address = address;
        report->is_write = context.is_write;
        if (address - reinterpret_cast<std::uintptr_t>(shared_end) < 4096) {
            report->detail = past_shared_memory;
            report->address -= reinterpret_cast<std::uintptr_t>(dynamic_shared_memory);
        }
    }
    leave();
}

void stop_or_postpone(Fault fault) {
    if (uninterruptible) {
        postponed = int(fault);
    } else {
        report_fault(fault);
        leave();
    }
}

void start_timer(double delay) {
    itimerspec when = {};
    when.it_value.tv_sec = time_t(delay);
    when.it_value.tv_nsec = long((delay - double(when.it_value.tv_sec)) * 1e9);
    if (delay > 0 && when.it_value.tv_sec == 0 && when.it_value.tv_nsec == 0)
        when.it_value.tv_nsec = 1;
    timer_settime(timer, 0, &when, nullptr);
}

void on_timer(int, siginfo_t*, void* raw_context) {
    if (!running || !pthread_equal(pthread_self(), launcher)) return;
    // The timer is set once for many launches; the limit holds for each.
    const double left = launch_start + timeout - seconds(CLOCK_MONOTONIC);
    if (left > 0) {
        start_timer(left < 1e-3 ? 1e-3 : left);
    } else if (checking && !probe_spinning()) {
        start_timer(0.1);
    } else {
        if (checking) check_note_place(read_context(raw_context).pc);
        stop_or_postpone(Fault::timeout);
    }
}

void on_interrupt(int signal, siginfo_t* info, void* context) {
    if (old_interrupt_action.sa_flags & SA_SIGINFO) {
        old_interrupt_action.sa_sigaction(signal, info, context);
    } else {
        old_interrupt_action.sa_handler(signal);
    }
    if (running && pthread_equal(pthread_self(), launcher)) stop_or_postpone(Fault::interrupted);
}

// ---- what a launch changes in the process, and puts back ----------------------------------

struct ProcessState {
    stack_t old_stack;
    sigset_t old_mask;
    FloatMode old_float_mode;
    bool has_timer;

    bool set() {
        static char* handler_stack;
        constexpr std::size_t handler_stack_size = 128 * 1024;
        if (!handler_stack) {
            void* memory = mmap(nullptr, handler_stack_size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED) return false;
            handler_stack = static_cast<char*>(memory);
        }
        stack_t stack = {};
        stack.ss_sp = handler_stack;
        stack.ss_size = handler_stack_size;
        if (sigaltstack(&stack, &old_stack) != 0) return false;

        sigset_t ours;
        sigemptyset(&ours);
        sigaddset(&ours, timer_signal);
        struct sigaction action = {};
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
        sigfillset(&action.sa_mask);
        action.sa_sigaction = on_fault;
        for (int i = 0; i < fault_signal_count; ++i) {
            sigaddset(&ours, fault_signals[i]);
            sigaction(fault_signals[i], &action, &old_fault_actions[i]);
        }
        action.sa_sigaction = on_timer;
        sigaction(timer_signal, &action, &old_timer_action);
        action.sa_sigaction = on_interrupt;
        sigaction(SIGINT, nullptr, &old_interrupt_action);
        if (old_interrupt_action.sa_handler != SIG_DFL && old_interrupt_action.sa_handler != SIG_IGN)
            sigaction(SIGINT, &action, nullptr);
        pthread_sigmask(SIG_UNBLOCK, &ours, &old_mask);

        sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = timer_signal;
        event.sigev_notify_thread_id = int(syscall(SYS_gettid));
        has_timer = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;

        old_float_mode = float_mode();
        set_float_mode(old_float_mode | flush_subnormals);
        return true;
    }

    void restore() {
        set_float_mode(old_float_mode);
        if (has_timer) timer_delete(timer);
        for (int i = 0; i < fault_signal_count; ++i)
            sigaction(fault_signals[i], &old_fault_actions[i], nullptr);
        sigaction(SIGINT, &old_interrupt_action, nullptr);
        pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
        sigaction(timer_signal, &old_timer_action, nullptr);
        sigaltstack(&old_stack, nullptr);
    }
};

// The same with each access watched. `blocks` has room for the order of the blocks.
void run_checked_grid(const Kernel& kernel, void** arguments, const CheckRequest& request,
                      std::uint32_t* blocks) {
    const Order order = {OrderKind(request.order), request.seed};
    const std::uint32_t count = gridDim.x * gridDim.y * gridDim.z;
    order.fill(blocks, count, 0);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t b = blocks[i];
        blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y};
        set_order(&order, b + 1ull, request.allow_different_barriers);
        poison_shared_memory(kernel);
        check_begin_block();
        run_block(kernel, arguments);
        check_end_block();
    }
}

void run_grid(const Kernel& kernel, void** arguments) {
    for (unsigned z = 0; z < gridDim.z; ++z)
        for (unsigned y = 0; y < gridDim.y; ++y)
            for (unsigned x = 0; x < gridDim.x; ++x) {
                blockIdx = {x, y, z};
                poison_shared_memory(kernel);
                run_block(kernel, arguments);
            }
}

}  // namespace

void shared_memory_range(std::uintptr_t& begin, std::uintptr_t& data, std::size_t& bytes,
                         std::uintptr_t& end) {
    begin = reinterpret_cast<std::uintptr_t>(shared_arena);
    data = reinterpret_cast<std::uintptr_t>(dynamic_shared_memory);
    bytes = dynamic_shared_bytes;
    end = reinterpret_cast<std::uintptr_t>(shared_end) + 4096;
}

void fail(const Mistake& mistake) {
    running = 0;
    report_fault(mistake.fault);
    report->detail = mistake.detail;
    report->thread = mistake.thread;
    report->other_thread = mistake.other_thread;
    report->line = mistake.place.line;
    report->other_line = mistake.other_place.line;
    copy_text(report->file, mistake.place.file);
    copy_text(report->other_file, mistake.other_place.file);
    leave();
}

void fail_assertion(const char* expression, const char* file, int line) {
    copy_text(report->text, expression);
    fail({Fault::assertion, {}, threadIdx, {}, {file, line}, {}});
}

void fail_trap(const char* file, int line) {
    fail({Fault::trap, {}, threadIdx, {}, {file, line}, {}});
}

void fail_exit(const char* function, const void* pc) {
    if (!running) abort();  // a constructor of the kernel's library: there is no launch to end
    copy_text(report->text, function);
    if (checking) check_note_place(reinterpret_cast<std::uintptr_t>(pc));
    fail({Fault::process_exit, {}, threadIdx, {}, {}, {}});
}

Uninterruptible::Uninterruptible() { uninterruptible = 1; }

Uninterruptible::~Uninterruptible() {
    uninterruptible = 0;
    if (postponed) stop_or_postpone(Fault(int(postponed)));
}

void stop_launch() {
    running = 0;
    report_fault(Fault::timeout);
    leave();
}

namespace {

constexpr std::size_t stack_size = 64 * 1024;

// Runs `work`, guarded: 0, or 1 with a report, or -1 where memory is lacking. `prepare` comes
// before, and says whether there is memory.
template <class Prepare, class Work>
int launch_guarded(const Launch& launch, std::size_t stack, Report& fault_report, Prepare prepare,
                   Work work) {
    gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
    blockDim = dim3(launch.block[0], launch.block[1], launch.block[2]);
    if (!prepare_stacks(blockDim.x * blockDim.y * blockDim.z, stack)) return -1;
    if (!place_shared_memory(launch.shared_bytes)) return -1;
    if (!prepare()) return -1;
    clear_printed();

    report = &fault_report;
    launcher = pthread_self();
    timeout = launch.timeout;
    uninterruptible = postponed = 0;
    static ProcessState state;
    if (!state.set()) return -1;

    int failed = sigsetjmp(give_up, 1);
    if (!failed) {
        launch_start = seconds(CLOCK_MONOTONIC);
        running = 1;
        if (state.has_timer) start_timer(timeout);
        work();
        running = 0;
    }
    state.restore();
    return failed;
}

}  // namespace

// Returns 0, or 1 with a report of the kernel's fault, or -1 where memory is lacking.
// `cpu_seconds` is the CPU time that this thread spent in all launches.
extern "C" PYTEST_GEMM_EXPORT int pytest_gemm_launch(const Kernel* kernel, const Launch* launch,
                                                     Report* fault_report, double* cpu_seconds) {
    set_order(nullptr, 0, launch->allow_different_barriers);
    const auto nothing = [] { return true; };
    return launch_guarded(*launch, stack_size, *fault_report, nothing, [=] {
        const double start = seconds(CLOCK_THREAD_CPUTIME_ID);
        for (std::uint32_t i = 0; i < launch->launches; ++i) {
            if (i > 0) launch_start = seconds(CLOCK_MONOTONIC);
            run_grid(*kernel, launch->arguments);
        }
        *cpu_seconds = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    });
}

// Launches a kernel that was built for checking, once; returns the same.
extern "C" PYTEST_GEMM_EXPORT int pytest_gemm_check(const Kernel* kernel, const Launch* launch,
                                                    Report* fault_report, CheckRequest* request) {
    const std::size_t bytes =
        sizeof(std::uint32_t) * launch->grid[0] * launch->grid[1] * launch->grid[2];
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return -1;
    // Code that hides nothing from the sanitizer keeps more on the stack.
    const int failed = launch_guarded(
        *launch, 4 * stack_size, *fault_report, [=] { return check_begin(*kernel, *request); },
        [=] {
            run_checked_grid(*kernel, launch->arguments, *request,
                             static_cast<std::uint32_t*>(memory));
        });
    check_end(failed == 0);
    munmap(memory, bytes);
    return failed;
}

}  // namespace pytest_gemm
