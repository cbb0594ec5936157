/// The outcome of one URL.
enum Outcome: Equatable {
  /// The image was saved.
  case saved(SavedImage)
  /// The image was not requested. A file with its name exists at this path, or (nil) the same URL occurred
  /// before.
  case skipped(path: String?)
  /// The image could not be fetched: a failure code of the API, and the reason for people.
  case failed(code: String, detail: String)
}

extension Outcome {
  /// For a URL given without a scheme whose TLS handshake failed: adds that it was read as https.
  var mentioningScheme: Outcome {
    guard case .failed("tls_failure", let detail) = self else { return self }
    return .failed(
      code: "tls_failure",
      detail: detail + " The URL has no scheme, so https was used. Add http:// for plain HTTP.")
  }
}

/// A saved image.
struct SavedImage: Equatable {
  /// The file's path; `-` for standard output.
  var path: String
  /// The size in pixels. Nil for a variant, whose size the service does not return.
  var size: (width: Int, height: Int)?
  /// The format, for example `jpeg`.
  var format: String
  var bytes: Int

  var description: String {
    let words = [size.map { "\($0.width)x\($0.height)" }, format, "\(bytes)"]
    return words.compactMap(\.self).joined(separator: " ")
  }

  static func == (a: SavedImage, b: SavedImage) -> Bool {
    a.path == b.path && a.description == b.description
  }
}

/// Why a run ends early.
enum EndOfRun: Error, Equatable {
  /// The service rejects an option of the command line.
  case usage(String)
  /// The user or the operator must fix something.
  case mistake(String)
  /// The program that reads the output has closed it.
  case outputClosed
  /// The stop flag was raised.
  case stopped
}
