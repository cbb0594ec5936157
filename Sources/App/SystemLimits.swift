internal import Glibc

/// Limits of the process, set before it serves.
enum SystemLimits {
  static func apply() {
    raiseDescriptorLimit()
    // A closed log pipe must not end the service.
    signal(SIGPIPE, SIG_IGN)
  }

  /// Raises the soft limit on file descriptors to the hard limit. Each connection and each transfer needs a descriptor.
  /// The usual soft limit of 1,024 only protects programs that use select().
  private static func raiseDescriptorLimit() {
    var limit = rlimit()
    let files = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    guard getrlimit(files, &limit) == 0 else { return }
    limit.rlim_cur = limit.rlim_max
    setrlimit(files, &limit)
  }

  /// The number of client connections that the limit on file descriptors allows. With more, transfers of jobs would fail.
  ///
  /// - Parameters:
  ///   - wanted: the configured maximum.
  ///   - own: descriptors that the service needs in addition to connections.
  /// - Returns: At most `wanted`, and at least a quarter of the limit.
  static func connections(limit wanted: Int, reserved own: Int) -> Int {
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return wanted }
    let descriptors = Int(clamping: limit.rlim_cur)
    return min(wanted, max(1, descriptors / 4, descriptors - own))
  }
}
