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
