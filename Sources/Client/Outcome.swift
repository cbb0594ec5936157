/// What became of one URL.
enum Outcome: Equatable {
  /// Its image is where it was wanted.
  case saved(SavedImage)
  /// It was not asked for: a file of its name was there, at this path, or (nil) the same URL was asked for before.
  case skipped(path: String?)
  /// It can't be had; a code of the API's, and why for people.
  case failed(code: String, detail: String)
}

extension Outcome {
  /// Of a URL that was given without a scheme: where TLS failed, that it was taken for https.
  var tellingOfScheme: Outcome {
    guard case .failed("tls_failure", let detail) = self else { return self }
    return .failed(
      code: "tls_failure", detail: detail + " Without http:// before it this was taken for https.")
  }
}

/// An image that was written.
struct SavedImage: Equatable {
  /// Where; `-` for standard output.
  var path: String
  /// In pixels; nil for a variant, of which the service doesn't tell.
  var size: (width: Int, height: Int)?
  /// `jpeg` and the like.
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

/// Why no more images of a run are asked for.
enum EndOfRun: Error, Equatable {
  /// The command line says something that the service doesn't take.
  case usage(String)
  /// The user or the operator can mend it.
  case mistake(String)
  /// Whoever read our output has gone away.
  case outputClosed
  /// The stop flag was raised.
  case stopped
}
