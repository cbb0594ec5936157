internal import CMalloc

/// Settings of glibc's allocator that return freed memory to the system after a burst of work.
package enum Allocator {
  /// Applies the settings. Call it before the first thread starts: once eight threads have allocated memory, glibc uses
  /// eight arenas per core and ignores M_ARENA_MAX.
  package static func configure() {
    // Each arena retains the memory that was freed in it. With two arenas, waiting for their locks took 3 % of the CPU time of
    // small jobs on two cores; more than eight saved nothing.
    mallopt(M_ARENA_MAX, 8)
    // Blocks of 1 MiB or more, such as variants, are mapped separately and unmapped when freed. By default glibc raises
    // this threshold to the largest block freed so far, up to 32 MiB. Such blocks then come from the arenas, and free
    // memory between used blocks does not return to the system. That was 340 MiB after 14 jobs with eight variants of
    // 5 megapixels each.
    mallopt(M_MMAP_THRESHOLD, 1 << 20)
    // Setting the mmap threshold fixes the trim threshold at 128 KiB. Nearly every free() at the end of an arena would
    // then make a system call.
    mallopt(M_TRIM_THRESHOLD, 4 << 20)
  }

  /// Returns free memory between small used blocks to the system every 30 seconds, until the task is cancelled.
  static func trimRegularly() async {
    while !Task.isCancelled {
      try? await Task.sleep(for: .seconds(30))
      // Below 32 MiB the gain is smaller than the cost of the next burst's page faults.
      if mallinfo2().fordblks > 32 << 20 { malloc_trim(0) }
    }
  }
}
