internal import FoundationEssentials

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

/// The output lines for programs.
extension Outcome {
  /// Returns fields separated by tabs. No field can contain a tab or a line end.
  func plainLine(for url: String) -> String {
    let fields =
      switch self {
      case .saved(let image): ["saved", image.path, url, image.description]
      case .skipped(let path): ["skipped", path ?? "", url, path == nil ? "repeated" : "exists"]
      case .failed(let code, let detail): ["failed", code, url, detail]
      }
    return fields.map(PlainText.line).joined(separator: "\t") + "\n"
  }

  /// Returns a JSON object on one line. Characters that control a terminal are escaped.
  func jsonLine(for url: String) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    // Strings and numbers can always be encoded.
    let bytes = (try? encoder.encode(Line(self, url))) ?? Data()
    return PlainText.escaped(String(decoding: bytes, as: UTF8.self)) + "\n"
  }

  private struct Line: Encodable {
    struct Failure: Encodable {
      let code: String
      let detail: String
    }

    let url: String
    var state: String
    var path: String?
    var bytes: Int?
    var width: Int?
    var height: Int?
    var format: String?
    var error: Failure?

    init(_ outcome: Outcome, _ url: String) {
      self.url = url
      switch outcome {
      case .saved(let image):
        (state, path, bytes, format) = ("saved", image.path, image.bytes, image.format)
        (width, height) = (image.size?.width, image.size?.height)
      case .skipped(let path):
        (state, self.path) = ("skipped", path)
      case .failed(let code, let detail):
        (state, error) = ("failed", Failure(code: code, detail: detail))
      }
    }
  }
}
