/// The style of text on a terminal.
struct Style: Sendable {
  /// Whether SGR sequences for colors are used. `NO_COLOR` turns them off.
  var hasColor: Bool
  /// Whether the terminal can show Unicode characters.
  var isUnicode: Bool

  static let plain = Style(hasColor: false, isUnicode: false)

  /// Reads the style from environment variables.
  init(environment: [String: String]) {
    hasColor = (environment["NO_COLOR"] ?? "").isEmpty
    let names = ["LC_ALL", "LC_CTYPE", "LANG"]
    let locale = names.compactMap { environment[$0] }.first { !$0.isEmpty } ?? ""
    isUnicode = locale.uppercased().contains("UTF-8") || locale.uppercased().contains("UTF8")
  }

  init(hasColor: Bool, isUnicode: Bool) {
    (self.hasColor, self.isUnicode) = (hasColor, isUnicode)
  }

  func good(_ text: String) -> String { colored(text, "32") }
  func bad(_ text: String) -> String { colored(text, "31") }
  func active(_ text: String) -> String { colored(text, "36") }
  func faint(_ text: String) -> String { colored(text, "2") }

  private func colored(_ text: String, _ code: String) -> String {
    hasColor && !text.isEmpty ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
  }

  /// Returns the line of a finished job. Control characters from origins and servers are replaced.
  func line(_ outcome: Outcome, for url: String) -> String {
    switch outcome {
    case .saved(let image):
      let mark = good(isUnicode ? "✓" : "saved")
      return "\(mark) \(PlainText.line(image.path))  \(faint(PlainText.line(image.description)))"
    case .skipped(let path):
      let mark = faint(isUnicode ? "–" : "skipped")
      return "\(mark) \(PlainText.line(path ?? url))  \(faint(path == nil ? "repeated" : "exists"))"
    case .failed(let code, let detail):
      let mark = bad(isUnicode ? "✗" : "failed")
      let text = "\(code): \(detail)"
      return "\(mark) \(PlainText.line(url))  \(bad(PlainText.line(text)))"
    }
  }
}
