internal import CMicroHTTPD
import Glibc
import Logging
import Synchronization

/// Runs libmicrohttpd's threads.
///
/// The daemon has no listening socket; the monitor accepts connections. With a listening socket,
/// `MHD_quiesce_daemon` aborts the process if a worker removes the socket from its epoll set at the same
/// moment.
///
/// `@unchecked Sendable`: the daemon's functions may be called from any thread. Only the monitor calls
/// `stop`, once.
final class Daemon: @unchecked Sendable {
  private let daemon: OpaquePointer
  private let context: Unmanaged<Monitor>
  private let strings: [UnsafeMutablePointer<CChar>]

  /// Starts the threads. `monitor` is retained until `stop`.
  init(_ monitor: Monitor) throws(ServerError) {
    let configuration = monitor.service.configuration
    context = Unmanaged.passRetained(monitor)
    let cores = max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    let threads = configuration.threads > 0 ? configuration.threads : cores
    let opaque = context.toOpaque()
    var options = [
      option(.EXTERNAL_LOGGER, CMicroHTTPD_logger(), opaque),
      option(.CONNECTION_MEMORY_LIMIT, configuration.poolSize),
      // The monitor counts connections. At its own limit libmicrohttpd closes connections silently, and its
      // thread can deadlock.
      option(.CONNECTION_LIMIT, 1 << 30),
      option(
        .CONNECTION_TIMEOUT, Int(max(1, configuration.idleTimeout.components.seconds))),
      option(.URI_LOG_CALLBACK, unsafeBitCast(requestLineReceived, to: Int.self), opaque),
      option(.UNESCAPE_CALLBACK, unsafeBitCast(disableUnescaping, to: Int.self)),
      option(.NOTIFY_COMPLETED, unsafeBitCast(requestEnded, to: Int.self), opaque),
      option(.NOTIFY_CONNECTION, unsafeBitCast(connectionChanged, to: Int.self), opaque),
    ]
    if threads > 1 { options.append(option(.THREAD_POOL_SIZE, threads)) }
    var flags =
      MHD_USE_EPOLL_INTERNAL_THREAD.rawValue | MHD_ALLOW_SUSPEND_RESUME.rawValue
      | MHD_USE_NO_LISTEN_SOCKET.rawValue | MHD_USE_ERROR_LOG.rawValue
    // This flag is level 1 of MHD_OPTION_CLIENT_DISCIPLINE_LVL, which the headers of 0.9.75 do not have.
    // Level 1 refuses bare CR and LF, folds, NULs, blanks in field names and targets, and Transfer-Encoding
    // with Content-Length. Level 2 also refuses an empty line before a request, which servers should ignore
    // (RFC 9112, section 2.2). Level 3 additionally refuses blanks after a chunk's size.
    if MicroHTTPDLibrary.isStrict { flags |= MHD_USE_PEDANTIC_CHECKS.rawValue }
    if let tls = configuration.tls {
      strings = [strdup(tls.certificate), strdup(tls.key)]
      flags |= MHD_USE_TLS.rawValue
      options.append(option(.HTTPS_MEM_CERT, 0, strings[0]))
      options.append(option(.HTTPS_MEM_KEY, 0, strings[1]))
    } else {
      strings = []
    }
    options.append(option(.END, 0))
    guard let daemon = CMicroHTTPD_start(flags, requestAdvanced, opaque, options) else {
      strings.forEach { free($0) }
      context.release()
      let detail = monitor.lastMessage
      throw configuration.tls == nil
        ? .resourcesExhausted(detail: detail) : .invalidCertificate(detail: detail)
    }
    self.daemon = daemon
  }

  /// Passes an accepted connection to the daemon, which then owns the descriptor, even if this fails.
  func add(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Bool {
    MHD_add_connection(daemon, descriptor, address, size) == .YES
  }

  /// Closes all connections and stops the threads. No connection may be suspended.
  func stop() {
    MHD_stop_daemon(daemon)
    strings.forEach { free($0) }
    context.release()
  }
}

private func option(
  _ option: MHD_OPTION, _ value: Int, _ pointer: UnsafeMutableRawPointer? = nil
) -> MHD_OptionItem {
  MHD_OptionItem(option: option, value: value, ptr_value: pointer)
}
