/// Images in one folder that the operator configured.
package protocol LocalImages: Sendable {
  /// Returns the image's bytes.
  ///
  /// - Parameter name: A relative path with `/` between its parts. The API layer has already refused `..`,
  ///   absolute paths and NUL.
  func open(_ name: String) async throws(LocalImageError) -> StoredBytes
}

/// Why a local image cannot be read.
package enum LocalImageError: Error, Sendable, Equatable {
  /// There is no file of this name.
  case notFound
  /// The path leads out of the folder, for example through a symbolic link.
  case outside
  /// The path is a folder, a device, a FIFO or a socket.
  case notAFile
  /// Any other failure; `detail` is for the log.
  case unavailable(detail: String)
}

extension LocalImageError: CustomStringConvertible {
  /// For the operator's log.
  package var description: String {
    switch self {
    case .notFound: "the file does not exist"
    case .outside: "the path leads out of the folder"
    case .notAFile: "the path is a folder, a device, a FIFO or a socket"
    case .unavailable(let detail): detail
    }
  }
}
