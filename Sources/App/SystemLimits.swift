internal import Glibc

/// The limits that the process sets itself before it starts.
enum SystemLimits {
  static func apply() {
    raiseDescriptorLimit()
    // A closed log pipe must not end the service.
    signal(SIGPIPE, SIG_IGN)
  }

  /// A connection and a transfer each take a descriptor; the soft limit of 1,024 is for programs that use select().
  private static func raiseDescriptorLimit() {
    var limit = rlimit()
    let files = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    guard getrlimit(files, &limit) == 0 else { return }
    limit.rlim_cur = limit.rlim_max
    setrlimit(files, &limit)
  }

  /// How many connections of clients fit into the descriptors that there may be: one too many would cost a job its transfer.
  ///
  /// - Parameters:
  ///   - wanted: what is configured.
  ///   - own: descriptors that the service needs beside them.
  static func connections(atMost wanted: Int, besides own: Int) -> Int {
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return wanted }
    let descriptors = Int(clamping: limit.rlim_cur)
    return min(wanted, max(1, descriptors / 4, descriptors - own))
  }
}
