internal import Glibc

/// Why a fetcher could not be made.
public enum FetcherSetupError: Error, Sendable, Equatable {
  /// libcurl did not start.
  case curlUnavailable
  /// The process has no descriptor left.
  case noDescriptor(errno: Int32)
  /// Not `http://` or `https://` with a host.
  case unusableProxy
  /// The file of certificate authorities can't be read.
  case unreadableCertificates(path: String)
}

extension FetcherSetupError: CustomStringConvertible {
  /// What happened, for the operator.
  public var description: String {
    switch self {
    case .curlUnavailable: "it does not start"
    case .noDescriptor(let code): "no descriptor is left: \(String(cString: strerror(code)))"
    case .unusableProxy: "the proxy is not http:// or https:// and a host"
    case .unreadableCertificates(let path): "the certificate authorities in \(path) can't be read"
    }
  }
}
