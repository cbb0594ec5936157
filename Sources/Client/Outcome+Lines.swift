internal import FoundationEssentials

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
