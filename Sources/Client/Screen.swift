internal import Glibc

/// The lower part of a terminal, redrawn in place: lines that are through scroll away above it.
struct Screen {
  private let descriptor: Int32
  /// The widths of the lines that stand there now.
  private var drawn: [Int] = []
  private var isCursorHidden = false

  init(_ descriptor: Int32) { self.descriptor = descriptor }

  /// Columns and rows of the terminal, as they are now.
  var size: (columns: Int, rows: Int) {
    var window = winsize()
    let isKnown = ioctl(descriptor, UInt(TIOCGWINSZ), &window) == 0 && window.ws_col > 0
    guard isKnown, window.ws_row > 0 else { return (80, 24) }
    return (Int(window.ws_col), Int(window.ws_row))
  }

  /// Writes lines that stay, and below them those that are redrawn.
  /// - Parameter lines: with how many columns each takes.
  mutating func draw(_ finished: [String], _ lines: [(text: String, width: Int)]) {
    var text = erasure
    if !isCursorHidden, !lines.isEmpty { text += "\u{1B}[?25l" }
    isCursorHidden = isCursorHidden || !lines.isEmpty
    for line in finished { text += line + "\u{1B}[K\n" }
    for line in lines { text += line.text + "\u{1B}[K\n" }
    text += "\u{1B}[J"
    drawn = lines.map(\.width)
    put(text)
  }

  /// Leaves the terminal as it was found, below the lines that stay.
  mutating func close(_ finished: [String]) {
    draw(finished, [])
    if isCursorHidden { put(Self.cursor) }
    isCursorHidden = false
  }

  static let cursor = "\u{1B}[?25h"

  /// Back to the first line that is redrawn. In a window that has become narrower each of them may take several rows.
  private var erasure: String {
    let columns = size.columns
    let rows = drawn.reduce(0) { $0 + max(1, ($1 + columns - 1) / columns) }
    return rows > 0 ? "\r\u{1B}[\(rows)A" : "\r"
  }

  private func put(_ text: String) {
    // A terminal that has gone away is seen by its SIGHUP.
    try? Descriptor.write(text, to: descriptor)
  }
}
