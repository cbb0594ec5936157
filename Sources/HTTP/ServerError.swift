/// Why the server could not be started.
public enum ServerError: Error, Sendable, Equatable {
  /// The host is neither an address nor a name that resolves to one.
  case unknownHost(String)
  /// The address cannot be listened on; `errno` says why.
  case addressUnavailable(host: String, port: Int, errno: Int32)
  /// The certificate or its key is not usable PEM.
  case invalidCertificate(detail: String)
  /// The system refused threads, memory or descriptors.
  case resourcesExhausted(detail: String)
  /// The installed libmicrohttpd is older than the oldest release that is supported.
  case libraryTooOld(version: String, oldest: String)
  /// It was started before.
  case alreadyStarted
}
