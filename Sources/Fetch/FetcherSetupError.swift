internal import Glibc

/// The reason why a fetcher could not be created.
package enum FetcherSetupError: Error, Sendable, Equatable {
  /// libcurl could not be initialized.
  case curlUnavailable
  /// The process has no free file descriptor.
  case noDescriptor(errno: Int32)
  /// The proxy is not `http://` or `https://` with a host.
  case unusableProxy
  /// The file of certificate authorities cannot be read.
  case unreadableCertificates(path: String)
}

extension FetcherSetupError: CustomStringConvertible {
  /// The reason, for the operator.
  package var description: String {
    switch self {
    case .curlUnavailable: "initialization failed"
    case .noDescriptor(let code): "no free file descriptor: \(String(cString: strerror(code)))"
    case .unusableProxy: "the proxy must be http:// or https:// with a host"
    case .unreadableCertificates(let path): "the certificate authorities in \(path) cannot be read"
    }
  }
}
