internal import Glibc

/// The lower part of a terminal, which is redrawn in place. Finished lines scroll away above it.
struct Screen {
  private let descriptor: Int32
  /// The widths of the lines that are drawn now.
  private var drawn: [Int] = []
  private var isCursorHidden = false

  init(_ descriptor: Int32) { self.descriptor = descriptor }

  /// The terminal's current size in columns and rows.
  var size: (columns: Int, rows: Int) {
    var window = winsize()
    let isKnown = ioctl(descriptor, UInt(TIOCGWINSZ), &window) == 0 && window.ws_col > 0
    guard isKnown, window.ws_row > 0 else { return (80, 24) }
    return (Int(window.ws_col), Int(window.ws_row))
  }

  /// Writes finished lines, and below them the lines that are redrawn.
  /// - Parameter lines: Each with its width in columns.
  mutating func draw(_ finished: [String], _ lines: [(text: String, width: Int)]) {
    var text = erasure
    if !isCursorHidden, !lines.isEmpty { text += "\u{1B}[?25l" }
    isCursorHidden = isCursorHidden || !lines.isEmpty
    for line in finished { text += line + "\u{1B}[K\n" }
    for line in lines { text += line.text + "\u{1B}[K\n" }
    text += "\u{1B}[J"
    drawn = lines.map(\.width)
    write(text)
  }

  /// Removes the redrawn lines and restores the cursor.
  mutating func close(_ finished: [String]) {
    draw(finished, [])
    if isCursorHidden { write(Self.cursor) }
    isCursorHidden = false
  }

  static let cursor = "\u{1B}[?25h"

  /// Moves the cursor to the first redrawn line. If the window has become narrower, a line may take several
  /// rows.
  private var erasure: String {
    let columns = size.columns
    let rows = drawn.reduce(0) { $0 + max(1, ($1 + columns - 1) / columns) }
    return rows > 0 ? "\r\u{1B}[\(rows)A" : "\r"
  }

  private func write(_ text: String) {
    // A write error is ignored: when the terminal is closed, the process receives SIGHUP.
    try? Descriptor.write(text, to: descriptor)
  }
}

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

/// Makes text of origins, servers and lists safe for a terminal: it stays on one line and moves no cursor.
enum PlainText {
  /// Replaces each control character, line separator and direction mark with U+FFFD.
  static func line(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: isUnsafe) else { return text }
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars { result.append(isUnsafe(scalar) ? "\u{FFFD}" : scalar) }
    return String(result)
  }

  /// Escapes the same characters in JSON, which keeps its meaning.
  static func escaped(_ json: String) -> String {
    guard json.unicodeScalars.contains(where: isUnsafe) else { return json }
    var result = ""
    for scalar in json.unicodeScalars {
      let digits = String(scalar.value, radix: 16)
      let escape = "\\u" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits
      result += isUnsafe(scalar) ? escape : String(scalar)
    }
    return result
  }

  /// Returns the text in printable ASCII, cut to `width` columns. Lines that are redrawn must have a known
  /// width.
  static func columns(_ text: String, atMost width: Int) -> String {
    let scalars = text.unicodeScalars.prefix(width + 1)
    var result = String.UnicodeScalarView()
    for scalar in scalars.prefix(width) {
      result.append(0x20...0x7E ~= scalar.value ? scalar : "?")
    }
    if scalars.count > width, width > 1 {
      result.removeLast()
      result.append("~")
    }
    return String(result)
  }

  private static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F...0x9F, 0x200E...0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
    default: false
    }
  }
}
