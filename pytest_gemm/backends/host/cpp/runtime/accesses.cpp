// Every load and store of a checked kernel comes by here.
//
// Two accesses of one place, at least one of them a store, race unless something orders them: a
// barrier between them, a warp operation that both lanes took part in, being of one thread, or
// atomics with a fence. Blocks run one after another and threads take turns, so
// "before" below means "before in this run"; what is reported does not depend on that.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <cstring>

#include "check.h"
#include "runtime.h"

namespace pytest_gemm {

bool checking;

namespace {

// ---- slots: one access, packed so that a later one is a greater number -----------------------
//
// interval 22 bits | thread 10 | clock 10 | plain 1 | atomic 1 | place 20
//
// An interval is the time between two barriers of one block. The clock counts a lane's warp
// operations since the barrier. An atomic is also plain where its block stored without one before:
// atomics of other blocks then race with that. What does not fit is treated as ordered: a race may
// then be missed, none is made up.
using Slot = std::uint64_t;

constexpr int interval_shift = 42, thread_shift = 32, clock_shift = 22;
constexpr Slot thread_mask = Slot(max_threads - 1) << thread_shift;
constexpr std::uint32_t last_clock = 1023;
constexpr Slot plain_bit = Slot(1) << 21, atomic_bit = Slot(1) << 20;
constexpr Slot place_mask = atomic_bit - 1;
constexpr Slot last_interval = (Slot(1) << (64 - interval_shift)) - 1;

std::uint32_t thread_of(Slot slot) { return std::uint32_t((slot & thread_mask) >> thread_shift); }
std::uint32_t clock_of(Slot slot) { return std::uint32_t(slot >> clock_shift) & last_clock; }

struct Cell {
    Slot write;
    Slot read, other_read;  // of this interval: by one thread, and by another
    Slot foreign_read;      // the last one by another block
};

struct Region {
    std::uintptr_t begin;  // of the memory that belongs to it, with what lies around
    std::size_t span;
    std::uintptr_t data;  // what may be accessed
    std::size_t bytes;
    // Of matrices with gaps between them or between their rows.
    std::size_t row_bytes, ld_bytes, matrix_bytes, stride_bytes;
    Cell* cells;
    std::size_t cell_bytes;  // that the cells take
    unsigned shift;          // each cell stands for 1 << shift bytes
    bool is_tracked, is_shared, has_gaps;
    std::int32_t number;
    const SharedVariable* variable;
    Counters* counters;
};

bool is_in_gap(const Region& region, std::size_t offset, std::size_t size) {
    const std::size_t inner = offset % region.stride_bytes;
    return inner + size > region.matrix_bytes || inner % region.ld_bytes + size > region.row_bytes;
}

constexpr std::uint32_t max_regions = 256;
Region regions[max_regions];
std::uint32_t region_count;
Region nowhere;

// Which region a place in the program accessed last: nearly always the one it accesses next.
constexpr std::uint32_t hint_count = 256;
Region* hints[hint_count];

CheckRequest* request;
std::uintptr_t image, image_end;  // the kernel's library
std::uintptr_t native_stack;
constexpr std::size_t native_stack_size = 8 << 20;

Slot interval;        // its number
Slot interval_begin;  // the least slot of the interval, and of the block
Slot block_begin;
std::uint32_t block_number;
uint3* block_indices;  // by the order in which they run
Slot* block_starts;
std::size_t block_memory;

std::uintptr_t last_pc;

// Set where the next access must first do something out of the ordinary.
bool attention = true;

// ---- the running thread ----------------------------------------------------------------------

// Lanes of a warp that has not met since the barrier are unordered; then `clocks` is not in use.
struct WarpClocks {
    bool in_use;
    std::uint16_t seen[warp_size][warp_size];  // [lane][other]: what lane knows of other
};

WarpClocks warp_clocks[max_warps];
uint3 stamped;  // the thread that `stamp` is of
Slot stamp;

void forget_stamp() { stamped.x = ~0u; }

[[gnu::noinline]] void renew_stamp() {
    const std::uint32_t thread = linear(threadIdx), lane = thread % warp_size;
    const WarpClocks& clocks = warp_clocks[thread / warp_size];
    const Slot clock = clocks.in_use ? clocks.seen[lane][lane] : 1;
    stamp = interval_begin | Slot(thread) << thread_shift | clock << clock_shift;
    stamped = threadIdx;
}

[[gnu::always_inline]] inline Slot slot_at(std::uintptr_t pc) {
    if (stamped.x != threadIdx.x || stamped.y != threadIdx.y || stamped.z != threadIdx.z)
        renew_stamp();
    const std::uintptr_t place = pc - image;
    return stamp | (place < place_mask ? place : 0);
}

// Of one thread: the interval in which it last did each. An atomic behind a fence hands on, to
// whoever then does an atomic; which address they are on is not looked at.
struct Handover {
    Slot fenced, handed_on, taken;
} handovers[max_threads];

// Whether an earlier access of this interval is ordered before the running thread.
bool is_ordered(Slot earlier, Slot now) {
    const std::uint32_t a = thread_of(earlier), b = thread_of(now);
    if (handovers[a].handed_on == interval && handovers[b].taken == interval) return true;
    if (a / warp_size != b / warp_size) return false;
    const WarpClocks& clocks = warp_clocks[b / warp_size];
    return clocks.in_use && clocks.seen[b % warp_size][a % warp_size] >= clock_of(earlier);
}

[[gnu::always_inline]] inline bool is_unordered(Slot earlier, Slot now) {
    return earlier >= interval_begin && ((earlier ^ now) & thread_mask) &&
           !is_ordered(earlier, now);
}

// ---- order between blocks: an atomic after a fence hands on what its thread knows ------------

// Of one block: what it did before its last barrier, and what one thread did after that. Where
// more threads hand on in one interval, all that is done in it counts.
struct Known {
    Slot before;  // 0: nothing
    Slot own;
};

constexpr std::uint32_t max_released = 64;  // the last one stands for all further addresses
struct Released {
    std::uintptr_t address;
    Known* blocks;  // one for each
} released[max_released];
std::uint32_t released_count;
Known* released_knowledge;
Known* acquired;
std::size_t knowledge_size, released_memory;
bool block_has_fenced;

constexpr Slot own_mask = ~((Slot(1) << thread_shift) - 1);

void learn(Known& known, const Known& other) {
    if (other.before > known.before) known = other;
    else if (other.before == known.before && other.before && other.own != known.own)
        known.before += Slot(1) << interval_shift;
}

void hand_on(std::uintptr_t address) {
    Handover& handover = handovers[linear(threadIdx)];
    if (handover.fenced == interval) handover.handed_on = interval;
    handover.taken = interval;
    std::uint32_t i = 0;
    while (i < released_count && i < max_released - 1 && released[i].address != address) ++i;
    if (i < released_count)
        for (std::size_t b = 0; b < knowledge_size; ++b) learn(acquired[b], released[i].blocks[b]);
    if (!block_has_fenced) return;
    if (i == released_count) {
        released[i] = {address, released_knowledge + i * knowledge_size};
        ++released_count;
    }
    for (std::size_t b = 0; b < knowledge_size; ++b) learn(released[i].blocks[b], acquired[b]);
    learn(released[i].blocks[block_number], {interval_begin, slot_at(image) & own_mask});
}

std::uint32_t block_of(Slot slot) {
    std::uint32_t low = 0, high = block_number;  // the last block that starts at or before it
    while (low < high) {
        const std::uint32_t middle = (low + high + 1) / 2;
        if (block_starts[middle] <= slot) low = middle; else high = middle - 1;
    }
    return low;
}

bool is_foreign(Slot earlier) {
    if (!earlier || earlier >= block_begin) return false;
    const Known& known = acquired[block_of(earlier)];
    return earlier >= known.before && (!known.before || (earlier & own_mask) != known.own);
}

// ---- findings --------------------------------------------------------------------------------

void describe(Finding& finding, const Region& region, std::uintptr_t address, std::size_t size) {
    finding.region = region.number;
    finding.address = address;
    finding.offset = std::int64_t(address - region.data);
    finding.size = std::uint32_t(size);
    if (const SharedVariable* variable = region.variable) {
        std::strncpy(finding.name, variable->name, sizeof finding.name - 1);
        std::memcpy(finding.extents, variable->extents, sizeof finding.extents);
        finding.element_size = variable->element_size;
    }
}

Finding access_finding(FindingKind kind, const Region& region, std::uintptr_t address,
                       std::size_t size, bool is_write, std::uintptr_t pc) {
    Finding finding = new_finding(kind, pc);
    finding.is_write = is_write;
    describe(finding, region, address, size);
    return finding;
}

Finding* find_same(const Finding& finding) {
    for (std::uint32_t i = 0; i < request->finding_count; ++i) {
        Finding& other = request->findings[i];
        if (other.kind == finding.kind && other.pc == finding.pc &&
            other.other_pc == finding.other_pc && other.region == finding.region)
            return &other;
    }
    return nullptr;
}

// ---- stores that may not change anything -----------------------------------------------------

// Several threads may store what is already there: that is no race worth a report. Whether they
// do is seen after the store, at the next access.
struct Suspect {
    Finding finding;
    std::size_t size;
    unsigned char before[8];
};
constexpr std::uint32_t max_suspects = 64;
Suspect suspects[max_suspects];
std::uint32_t suspect_count;

void judge_suspects() {
    for (std::uint32_t i = 0; i < suspect_count; ++i) {
        Suspect& suspect = suspects[i];
        const auto* now = reinterpret_cast<const void*>(suspect.finding.address);
        if (std::memcmp(suspect.before, now, suspect.size) != 0) add_finding(suspect.finding);
    }
    suspect_count = 0;
}

[[gnu::noinline]] void report_race(Region& region, std::size_t cell, bool is_write, Slot now,
                                   bool other_is_write, Slot other) {
    const std::uintptr_t address = region.data + (cell << region.shift);
    const std::size_t size = std::size_t(1) << region.shift;
    Finding finding = access_finding(FindingKind::race, region, address, size, is_write,
                                     image + (now & place_mask));
    finding.other_is_write = other_is_write;
    finding.other_pc = other & place_mask;
    finding.other_thread = unravel(thread_of(other));
    finding.other_block = other >= block_begin ? blockIdx : block_indices[block_of(other)];
    if (Finding* same = find_same(finding)) {
        ++same->count;
    } else if (!is_write) {
        add_finding(finding);
    } else if (suspect_count < max_suspects) {
        Suspect& suspect = suspects[suspect_count++];
        suspect.finding = finding;
        suspect.size = size;
        std::memcpy(suspect.before, reinterpret_cast<const void*>(address), size);
        attention = true;
    }
}

// ---- loads of shared memory that nobody has written ------------------------------------------

// Another thread may write it later in the same interval: then the two race. So it is known only
// at the next barrier that nobody has.
struct Pending {
    Region* region;
    std::uintptr_t address;
    std::size_t size;
    uint3 thread;
    Slot slot;
};
constexpr std::uint32_t max_pending = 1 << 14;
Pending pending[max_pending];
std::uint32_t pending_count;

void judge_pending() {
    const uint3 running = threadIdx;
    for (std::uint32_t i = 0; i < pending_count; ++i) {
        const Pending& p = pending[i];
        const Slot w = p.region->cells[(p.address - p.region->data) >> p.region->shift].write;
        if (w >= interval_begin && ((w ^ p.slot) & thread_mask)) continue;
        threadIdx = p.thread;
        Finding finding = access_finding(FindingKind::uninitialized, *p.region, p.address, p.size,
                                         false, image + (p.slot & place_mask));
        if (Finding* same = find_same(finding)) {
            ++same->count;
        } else {
            add_finding(finding);
        }
    }
    threadIdx = running;
    pending_count = 0;
}

[[gnu::noinline]] void note_unwritten(Region& region, std::size_t cell, Slot now) {
    if (pending_count == max_pending) return;
    pending[pending_count++] = {&region, region.data + (cell << region.shift),
                                std::size_t(1) << region.shift, threadIdx, now};
}

// ---- a thread that waits for a value ---------------------------------------------------------

// When the time is over, the loads that follow are sampled: a thread that waits for another one
// reads the same address again and again.
constexpr std::uint32_t probe_length = 64;
std::uint32_t probes_left;
bool has_probed;
std::uintptr_t probed;

void probe(const Region& region, std::uintptr_t address, std::uintptr_t pc, bool is_polling) {
    if (probed == 0) probed = address;
    if (probed != address || !is_polling) probes_left = 0;
    if (probes_left == 0 || --probes_left > 0) return;
    Finding finding = access_finding(FindingKind::waiting, region, address, 4, false, pc);
    add_finding(finding);
    check_note_place(pc);
    stop_launch();
}

// Does what `attention` asked for. False where nothing is to be watched: constructors of a
// kernel's library run when there is no launch.
[[gnu::noinline]] bool attend() {
    if (!checking) return false;
    judge_suspects();
    attention = probes_left > 0;
    return true;
}

// ---- the access ------------------------------------------------------------------------------

[[gnu::noinline]] Region* search(std::uintptr_t address, std::uintptr_t pc, Region** hint) {
    for (std::uint32_t i = 0; i < region_count; ++i)
        if (address - regions[i].begin < regions[i].span) return *hint = &regions[i];
    if (address - image < image_end - image) return &nowhere;
    if (native_stack - address < native_stack_size) return &nowhere;
    Finding finding = new_finding(FindingKind::out_of_bounds, pc);
    finding.is_write = -1;
    finding.region = wild_region;
    finding.address = address;
    add_finding(finding);
    return &nowhere;
}

[[gnu::always_inline]] inline Region* find(std::uintptr_t address, std::uintptr_t pc) {
    Region** hint = &hints[(pc ^ pc >> 8) % hint_count];
    if (address - (*hint)->begin < (*hint)->span) [[likely]] return *hint;
    return search(address, pc, hint);
}

// One cell now stands for fewer bytes: halves and bytes are told apart once somebody uses them.
[[gnu::noinline]] void refine(Region& region, unsigned shift) {
    const std::size_t pieces = std::size_t(1) << (region.shift - shift);
    const std::size_t bytes = region.cell_bytes * pieces;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    auto* cells = static_cast<Cell*>(memory);
    for (std::size_t i = 0; i < bytes / sizeof(Cell); ++i) cells[i] = region.cells[i / pieces];
    munmap(region.cells, region.cell_bytes);
    region.cells = cells;
    region.cell_bytes = bytes;
    region.shift = shift;
}

[[gnu::noinline]] void report_access(FindingKind kind, const Region& region, std::uintptr_t address,
                                     std::size_t size, bool is_write, std::uintptr_t pc) {
    Finding finding = access_finding(kind, region, address, size, is_write, pc);
    if (Finding* same = find_same(finding)) {
        ++same->count;
    } else {
        add_finding(finding);
    }
}

inline bool both_atomic(Slot earlier, Slot now) {
    return (earlier & now & atomic_bit) && !(earlier < block_begin && earlier & plain_bit);
}

[[gnu::always_inline]] inline void load(Region& region, std::size_t index, Slot now) {
    Cell& cell = region.cells[index];
    const Slot w = cell.write;
    if (w >= block_begin) {
        if (w >= interval_begin && ((w ^ now) & thread_mask)) [[unlikely]] {
            if (!both_atomic(w, now) && !is_ordered(w, now))
                report_race(region, index, false, now, true, w);
        }
    } else if (!region.is_shared && w && !both_atomic(w, now) && is_foreign(w)) [[unlikely]] {
        report_race(region, index, false, now, true, w);
    }
    const Slot r = cell.read;
    if (r >= interval_begin && ((r ^ now) & thread_mask)) {
        if (is_ordered(r, now)) {
            cell.read = now;
        } else {
            cell.other_read = now;
        }
    } else {
        if (r && r < block_begin && !region.is_shared) cell.foreign_read = r;
        cell.read = now;
    }
}

// A struct may be copied with the gaps between its members: a word that is written in part, or for
// a copy of any size the whole range, counts as written.
[[gnu::noinline]] void check_written(Region& region, std::size_t index, std::size_t last, Slot now,
                                     bool is_copy) {
    const std::size_t step = is_copy ? last - index + 1 : std::size_t(4) >> region.shift;
    for (std::size_t word = index; word <= last; word = (word / step + 1) * step) {
        const std::size_t end = is_copy ? last + 1 : (word / step + 1) * step;
        std::size_t cell = word;
        while (cell <= last && cell < end && region.cells[cell].write < block_begin) ++cell;
        if (cell > last || cell == end) note_unwritten(region, word, now);
        if (is_copy) return;
    }
}

[[gnu::always_inline]] inline void store(Region& region, std::size_t index, Slot now) {
    Cell& cell = region.cells[index];
    const auto conflicts = [&](Slot earlier) {
        return is_unordered(earlier, now) && !both_atomic(earlier, now);
    };
    if (conflicts(cell.write)) [[unlikely]] report_race(region, index, true, now, true, cell.write);
    if (conflicts(cell.read)) [[unlikely]] report_race(region, index, true, now, false, cell.read);
    if (conflicts(cell.other_read)) [[unlikely]]
        report_race(region, index, true, now, false, cell.other_read);
    if (!region.is_shared) {
        const auto meets = [&](Slot earlier) {
            return is_foreign(earlier) && !both_atomic(earlier, now);
        };
        if (cell.write < block_begin && meets(cell.write)) [[unlikely]]
            report_race(region, index, true, now, true, cell.write);
        if (cell.read < block_begin && meets(cell.read)) [[unlikely]]
            report_race(region, index, true, now, false, cell.read);
        if (meets(cell.foreign_read)) [[unlikely]]
            report_race(region, index, true, now, false, cell.foreign_read);
    }
    if (now & atomic_bit) [[unlikely]] {
        const Slot w = cell.write;
        const bool is_own = w >= interval_begin && !((w ^ now) & thread_mask);
        if (is_own && !(w & atomic_bit)) return;  // others race with that one
        if (w >= block_begin && (!(w & atomic_bit) || w & plain_bit)) now |= plain_bit;
    }
    cell.write = now;
}

enum class Access { load, store, atomic };

template <Access what>
[[gnu::always_inline]] inline void watch(const volatile void* pointer, std::size_t size,
                                         std::uintptr_t pc, bool is_aligned, Slot flags = 0,
                                         bool is_copy = false) {
    if (attention && !attend()) [[unlikely]] return;
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    Region& region = *find(address, pc);
    if (!region.is_tracked) return;
    last_pc = pc;

    constexpr bool is_write = what != Access::load;
    Counters& counters = *region.counters;
    if (what == Access::load) ++counters.loads, counters.load_bytes += size;
    if (what == Access::store) ++counters.stores, counters.store_bytes += size;
    if (what == Access::atomic) ++counters.atomics, counters.atomic_bytes += size;

    const std::size_t offset = address - region.data;
    if (offset >= region.bytes || size > region.bytes - offset) [[unlikely]]
        return report_access(FindingKind::out_of_bounds, region, address, size, is_write, pc);
    if (region.has_gaps && is_in_gap(region, offset, size)) [[unlikely]]
        return report_access(FindingKind::out_of_bounds, region, address, size, is_write, pc);
    if (what == Access::atomic && region.is_shared &&
        region.cells[offset >> region.shift].write < block_begin) [[unlikely]]
        report_access(FindingKind::uninitialized, region, address, size, false, pc);
    if (is_aligned && (address & (size - 1))) [[unlikely]]
        report_access(FindingKind::misaligned, region, address, size, is_write, pc);
    if (probes_left > 0) [[unlikely]] probe(region, address, pc, flags != 0);

    std::size_t granule = std::size_t(1) << region.shift;
    if (((address | size) & (granule - 1)) && region.shift > 0) [[unlikely]] {
        refine(region, (address | size) & 1 ? 0 : 1);
        granule = std::size_t(1) << region.shift;
    }
    const Slot now = slot_at(pc) | (region.is_shared && what != Access::atomic ? 0 : flags);
    std::size_t index = offset >> region.shift;
    const std::size_t last = (offset + size - 1) >> region.shift;
    if (what == Access::load && region.is_shared &&
        (region.cells[index].write < block_begin || region.cells[last].write < block_begin))
        [[unlikely]] check_written(region, index, last, now, is_copy);
    do {
        if constexpr (is_write) {
            store(region, index, now);
        } else {
            load(region, index, now);
        }
    } while (++index <= last);
}

template <Access what>
[[gnu::noinline]] void watch_rare(const volatile void* pointer, std::size_t size,
                                  std::uintptr_t pc, bool is_aligned, Slot flags = 0,
                                  bool is_copy = false) {
    watch<what>(pointer, size, pc, is_aligned, flags, is_copy);
}

// A range counts as accesses of 16 bytes, the most that one instruction of a GPU moves.
template <Access what>
void watch_range(const void* pointer, std::size_t size, std::uintptr_t pc) {
    const auto* bytes = static_cast<const char*>(pointer);
    for (std::size_t done = 0; done < size; done += 16)
        watch_rare<what>(bytes + done, size - done < 16 ? size - done : 16, pc, false, 0, true);
}

Region* add_region(std::uintptr_t begin, std::uintptr_t end) {
    if (region_count == max_regions) return nullptr;
    Region& region = regions[region_count++] = {};
    region.begin = begin;
    region.span = end - begin;
    return &region;
}

bool add_tracked(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t data, std::size_t bytes,
                 std::int32_t number, Counters& counters, bool is_shared) {
    Region* region = add_region(begin, end);
    if (!region) return false;
    region->data = data;
    region->bytes = bytes;
    region->is_tracked = true;
    region->is_shared = is_shared;
    region->shift = 2;
    region->number = number;
    region->counters = &counters;
    region->cell_bytes = (bytes / 4 + 1) * sizeof(Cell);
    void* memory = mmap(nullptr, region->cell_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    region->cells = memory == MAP_FAILED ? nullptr : static_cast<Cell*>(memory);
    return region->cells;
}

struct Images {
    std::uintptr_t of[2], end[2];
};

int measure_image(dl_phdr_info* info, std::size_t, void* data) {
    auto& images = *static_cast<Images*>(data);
    for (int i = 0; i < 2; ++i) {
        if (info->dlpi_addr != images.of[i]) continue;
        for (int p = 0; p < info->dlpi_phnum; ++p) {
            const auto& header = info->dlpi_phdr[p];
            const std::uintptr_t end = info->dlpi_addr + header.p_vaddr + header.p_memsz;
            if (header.p_type == PT_LOAD && end > images.end[i]) images.end[i] = end;
        }
    }
    return 0;
}

// Before the numbers of intervals run out. What earlier blocks did counts as ordered from now on.
void forget_earlier_blocks() {
    for (std::uint32_t i = 0; i < region_count; ++i)
        if (regions[i].cells) madvise(regions[i].cells, regions[i].cell_bytes, MADV_DONTNEED);
    std::memset(handovers, 0, sizeof handovers);
    std::memset(block_starts, 0, block_number * sizeof(Slot));
    interval = 0;
}

void begin_interval() {
    if (interval < last_interval) ++interval;
    interval_begin = interval << interval_shift;
    for (WarpClocks& clocks : warp_clocks) clocks.in_use = false;
    forget_stamp();
}

}  // namespace

// ---- what the runtime tells ------------------------------------------------------------------

Finding new_finding(FindingKind kind, std::uintptr_t pc) {
    Finding finding = {};
    finding.kind = kind;
    finding.region = no_region;
    finding.count = 1;
    finding.pc = pc - image < image_end - image ? pc - image : 0;
    finding.block = blockIdx;
    finding.thread = threadIdx;
    return finding;
}

void add_finding(Finding& finding) {
    if (!checking) return;
    if (Finding* same = find_same(finding)) {
        ++same->count;
    } else if (request->finding_count == request->finding_capacity) {
        ++request->lost_findings;
    } else {
        request->findings[request->finding_count++] = finding;
    }
}

bool check_begin(const Kernel& kernel, CheckRequest& check_request) {
    request = &check_request;
    region_count = 0;
    for (Region*& hint : hints) hint = &nowhere;

    bool has_memory = true;
    for (const SharedVariable* v = *kernel.shared_variables; v; v = v->next) {
        const auto data = reinterpret_cast<std::uintptr_t>(v->address);
        has_memory &= add_tracked(data - v->red_zone, data + v->size + v->red_zone, data, v->size,
                                  static_region, request->shared, true);
        if (has_memory) regions[region_count - 1].variable = v;
    }
    for (const SharedVariable* v = *kernel.device_variables; v; v = v->next) {
        const auto data = reinterpret_cast<std::uintptr_t>(v->address);
        has_memory &= add_tracked(data, data + v->size, data, v->size, variable_region,
                                  request->variables, false);
        if (has_memory) regions[region_count - 1].variable = v;
    }
    std::uintptr_t begin, data, end;
    std::size_t bytes;
    shared_memory_range(begin, data, bytes, end);
    has_memory &= add_tracked(begin, end, data, bytes, dynamic_region, request->shared, true);
    for (std::uint32_t i = 0; i < request->matrix_count; ++i) {
        CheckedMatrix& m = request->matrices[i];
        const std::size_t used = m.rows ? (m.rows - 1) * m.ld_bytes + m.row_bytes : 0;
        const std::size_t all = (m.batch - 1) * m.stride_bytes + used;
        has_memory &= add_tracked(m.span_begin, m.span_end, m.begin, all, std::int32_t(i),
                                  m.counters, false);
        if (!has_memory) break;
        Region& region = regions[region_count - 1];
        const bool is_dense = m.row_bytes == m.ld_bytes;
        region.row_bytes = is_dense ? used : m.row_bytes;
        region.ld_bytes = is_dense ? used : m.ld_bytes;
        region.matrix_bytes = used;
        region.stride_bytes = m.batch > 1 ? m.stride_bytes : used;
        region.has_gaps = !is_dense || used < region.stride_bytes;
    }

    Dl_info of_kernel = {}, of_runtime = {};
    dladdr(reinterpret_cast<const void*>(&kernel), &of_kernel);
    dladdr(reinterpret_cast<const void*>(&threadIdx), &of_runtime);
    Images images = {{reinterpret_cast<std::uintptr_t>(of_kernel.dli_fbase),
                      reinterpret_cast<std::uintptr_t>(of_runtime.dli_fbase)},
                     {}};
    dl_iterate_phdr(measure_image, &images);
    image = images.of[0];
    image_end = images.end[0];
    add_region(images.of[1], images.end[1]);
    stack_range(begin, end);
    add_region(begin, end);
    native_stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));

    const std::size_t blocks = std::size_t(gridDim.x) * gridDim.y * gridDim.z;
    knowledge_size = blocks;
    released_memory = (max_released + 1) * blocks * sizeof(Known);
    block_memory = (blocks * (sizeof(uint3) + sizeof(Slot)) + 15) / 16 * 16;
    void* memory = mmap(nullptr, block_memory + released_memory, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    has_memory &= memory != MAP_FAILED;
    block_starts = memory == MAP_FAILED ? nullptr : static_cast<Slot*>(memory);
    block_indices = reinterpret_cast<uint3*>(block_starts + blocks);
    acquired = reinterpret_cast<Known*>(static_cast<char*>(memory) + block_memory);
    released_knowledge = acquired + blocks;

    released_count = suspect_count = pending_count = probes_left = 0;
    has_probed = false;
    probed = last_pc = 0;
    interval = 0;
    std::memset(handovers, 0, sizeof handovers);
    block_number = ~0u;
    checking = has_memory;
    attention = !checking;
    return has_memory;
}

void check_end(bool is_complete) {
    if (checking) judge_suspects();
    if (checking && is_complete) judge_pending();
    checking = false;
    attention = true;
    for (std::uint32_t i = 0; i < region_count; ++i)
        if (regions[i].cells) munmap(regions[i].cells, regions[i].cell_bytes);
    if (block_starts) munmap(block_starts, block_memory + released_memory);
    block_starts = nullptr;
    region_count = 0;
    for (Region*& hint : hints) hint = &nowhere;
}

void check_begin_block() {
    ++block_number;
    if (interval > last_interval / 2) forget_earlier_blocks();
    begin_interval();
    block_begin = interval_begin;
    block_starts[block_number] = block_begin;
    block_indices[block_number] = blockIdx;
    if (released_count) std::memset(acquired, 0, knowledge_size * sizeof(Known));
    block_has_fenced = false;
}

void check_end_block() {
    judge_suspects();
    judge_pending();
}

void check_barrier() {
    check_end_block();
    ++request->barriers;
    begin_interval();
}

void check_warp(std::uint32_t warp, std::uint32_t mask) {
    WarpClocks& clocks = warp_clocks[warp];
    if (!clocks.in_use) {
        std::memset(clocks.seen, 0, sizeof clocks.seen);
        for (std::uint32_t lane = 0; lane < warp_size; ++lane) clocks.seen[lane][lane] = 1;
        clocks.in_use = true;
    }
    std::uint16_t latest[warp_size] = {};
    for (std::uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const std::uint16_t* seen = clocks.seen[__builtin_ctz(lanes)];
        for (std::uint32_t other = 0; other < warp_size; ++other)
            latest[other] = seen[other] > latest[other] ? seen[other] : latest[other];
    }
    for (std::uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const auto lane = std::uint32_t(__builtin_ctz(lanes));
        std::memcpy(clocks.seen[lane], latest, sizeof latest);
        if (clocks.seen[lane][lane] < last_clock) ++clocks.seen[lane][lane];
    }
    forget_stamp();
}

void check_note_place(std::uintptr_t pc) {
    const bool is_kernel = pc - image < image_end - image;
    const std::uintptr_t place = is_kernel ? pc : last_pc;
    request->pc = place - image < image_end - image ? place - image : 0;
}

bool probe_spinning() {
    if (has_probed) return true;
    has_probed = true;
    probed = 0;
    probes_left = probe_length;
    attention = true;
    return false;
}

void check_atomic(const volatile void* address, std::size_t size, const void* pc) {
    watch_rare<Access::atomic>(address, size, reinterpret_cast<std::uintptr_t>(pc), true,
                               atomic_bit);
    hand_on(reinterpret_cast<std::uintptr_t>(address));
}

void check_fence(bool is_for_all_blocks) {
    block_has_fenced |= is_for_all_blocks;
    handovers[linear(threadIdx)].fenced = interval;
}

// ---- what the compiler's instrumentation calls -----------------------------------------------

#define PYTEST_GEMM_PC reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

#define PYTEST_GEMM_WATCH(size)                                                              \
    PYTEST_GEMM_EXPORT void __tsan_read##size(const void* p) {                               \
        watch<Access::load>(p, size, PYTEST_GEMM_PC, true);                                  \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_write##size(const void* p) {                              \
        watch<Access::store>(p, size, PYTEST_GEMM_PC, true);                                 \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_read_write##size(const void* p) {                         \
        watch_rare<Access::load>(p, size, PYTEST_GEMM_PC, true);                             \
        watch_rare<Access::store>(p, size, PYTEST_GEMM_PC, true);                            \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_unaligned_read##size(const void* p) {                     \
        watch_rare<Access::load>(p, size, PYTEST_GEMM_PC, false);                            \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_unaligned_write##size(const void* p) {                    \
        watch_rare<Access::store>(p, size, PYTEST_GEMM_PC, false);                           \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_unaligned_read_write##size(const void* p) {               \
        watch_rare<Access::load>(p, size, PYTEST_GEMM_PC, false);                            \
        watch_rare<Access::store>(p, size, PYTEST_GEMM_PC, false);                           \
    }                                                                                        \
    /* Polling and its answer, between blocks: as good as atomic. */                         \
    PYTEST_GEMM_EXPORT void __tsan_volatile_read##size(const void* p) {                      \
        watch_rare<Access::load>(p, size, PYTEST_GEMM_PC, true, atomic_bit);                 \
        hand_on(reinterpret_cast<std::uintptr_t>(p));                                        \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_volatile_write##size(const void* p) {                     \
        watch_rare<Access::store>(p, size, PYTEST_GEMM_PC, true, atomic_bit);                \
        hand_on(reinterpret_cast<std::uintptr_t>(p));                                        \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_unaligned_volatile_read##size(const void* p) {            \
        watch_rare<Access::load>(p, size, PYTEST_GEMM_PC, false, atomic_bit);                \
    }                                                                                        \
    PYTEST_GEMM_EXPORT void __tsan_unaligned_volatile_write##size(const void* p) {           \
        watch_rare<Access::store>(p, size, PYTEST_GEMM_PC, false, atomic_bit);               \
    }

extern "C" {

PYTEST_GEMM_WATCH(1)
PYTEST_GEMM_WATCH(2)
PYTEST_GEMM_WATCH(4)
PYTEST_GEMM_WATCH(8)
PYTEST_GEMM_WATCH(16)

PYTEST_GEMM_EXPORT void __tsan_read_range(const void* p, std::size_t size) {
    watch_range<Access::load>(p, size, PYTEST_GEMM_PC);
}
PYTEST_GEMM_EXPORT void __tsan_write_range(const void* p, std::size_t size) {
    watch_range<Access::store>(p, size, PYTEST_GEMM_PC);
}

// The store must follow its announcement at once: see `Suspect`.
PYTEST_GEMM_EXPORT void* __tsan_memcpy(void* to, const void* from, std::size_t size) {
    watch_range<Access::load>(from, size, PYTEST_GEMM_PC);
    watch_range<Access::store>(to, size, PYTEST_GEMM_PC);
    return std::memcpy(to, from, size);
}
PYTEST_GEMM_EXPORT void* __tsan_memmove(void* to, const void* from, std::size_t size) {
    watch_range<Access::load>(from, size, PYTEST_GEMM_PC);
    watch_range<Access::store>(to, size, PYTEST_GEMM_PC);
    return std::memmove(to, from, size);
}
PYTEST_GEMM_EXPORT void* __tsan_memset(void* to, int value, std::size_t size) {
    watch_range<Access::store>(to, size, PYTEST_GEMM_PC);
    return std::memset(to, value, size);
}
void* pytest_gemm_memcpy(void* to, const void* from, std::size_t size) {
    watch_range<Access::load>(from, size, PYTEST_GEMM_PC);
    watch_range<Access::store>(to, size, PYTEST_GEMM_PC);
    return std::memcpy(to, from, size);
}
void* pytest_gemm_memmove(void* to, const void* from, std::size_t size) {
    watch_range<Access::load>(from, size, PYTEST_GEMM_PC);
    watch_range<Access::store>(to, size, PYTEST_GEMM_PC);
    return std::memmove(to, from, size);
}
void* pytest_gemm_memset(void* to, int value, std::size_t size) {
    watch_range<Access::store>(to, size, PYTEST_GEMM_PC);
    return std::memset(to, value, size);
}

void* pytest_gemm_memmove_at(void* to, const void* from, std::size_t size, const void* pc) {
    watch_range<Access::load>(from, size, reinterpret_cast<std::uintptr_t>(pc));
    watch_range<Access::store>(to, size, reinterpret_cast<std::uintptr_t>(pc));
    return std::memmove(to, from, size);
}

PYTEST_GEMM_EXPORT void __tsan_init() {}
PYTEST_GEMM_EXPORT void __tsan_func_entry(const void*) {}
PYTEST_GEMM_EXPORT void __tsan_func_exit() {}
PYTEST_GEMM_EXPORT void __tsan_vptr_update(void*, void*) {}
PYTEST_GEMM_EXPORT void __tsan_vptr_read(void*) {}

}  // extern "C"

}  // namespace pytest_gemm
