internal import CMalloc

/// Settings of glibc's allocator, with which freed memory returns to the system after a burst.
public enum Allocator {
  /// Applies the settings. Call it before the first thread starts: once eight threads have allocated, glibc has fixed the
  /// number of arenas at eight a core, and M_ARENA_MAX is ignored.
  public static func configure() {
    // Each arena keeps what was freed in it.
    mallopt(M_ARENA_MAX, 2)
    // Larger blocks, such as variants, are mapped on their own and unmapped when freed. By default glibc raises the
    // threshold to the largest block freed so far, up to 32 MiB. The arenas then hold such blocks, and free memory between
    // blocks in use does not return to the system: 340 MiB of it after 14 jobs with eight variants of 5 megapixels each.
    mallopt(M_MMAP_THRESHOLD, 1 << 20)
    // Setting that threshold leaves this one at 128 KiB, with a system call for nearly every free at an arena's end.
    mallopt(M_TRIM_THRESHOLD, 4 << 20)
  }

  /// Returns freed memory between small blocks in use to the system, every half minute, until the task is cancelled.
  static func trimRegularly() async {
    while !Task.isCancelled {
      try? await Task.sleep(for: .seconds(30))
      // Less is not worth the page faults of the next burst.
      if mallinfo2().fordblks > 32 << 20 { malloc_trim(0) }
    }
  }
}
