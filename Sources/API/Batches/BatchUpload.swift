internal import Jobs
internal import Synchronization

/// The lines of one upload while it arrives. Its pieces may be read on different threads, one after the other.
final class BatchUpload: Sendable {
  private struct State {
    var format: any BatchFormat
    var reader: LineReader
    var mark = ByteOrderMark()
  }

  private let state: Mutex<State>

  init(_ format: any BatchFormat, into reader: LineReader) {
    state = Mutex(State(format: format, reader: reader))
  }

  /// Reads a piece of the content, whose beginning may be a byte order mark.
  func read(_ piece: [UInt8]) throws(Problem) {
    try change { state throws(Problem) in
      let text = state.mark.removed(from: piece)
      try state.format.read(text, into: &state.reader)
    }
  }

  /// Ends the content.
  /// - Parameter completesContent: whether no later upload continues what a repeated request is compared with.
  func end(completesContent: Bool = false) throws(Problem) {
    try change { state throws(Problem) in
      let rest = state.mark.rest()
      try state.format.read(rest, into: &state.reader)
      try state.format.end(into: &state.reader)
      if completesContent { state.reader.completeContent() }
    }
  }

  /// See ``LineReader/verdict``.
  var verdict: Bool? { state.withLock { $0.reader.verdict } }
  /// See ``LineReader/finalVerdict``.
  var finalVerdict: Bool? { state.withLock { $0.reader.finalVerdict } }

  /// Returns the lines read since the last call, and whether the upload has more lines than a batch may have.
  func take() -> (parts: [NewLines], isOverfull: Bool) {
    state.withLock { ($0.reader.take(), $0.reader.isOverfull) }
  }

  private func change(
    _ body: (inout State) throws(Problem) -> Void
  ) throws(Problem) {
    try state.withLock { state throws(Problem) in try body(&state) }
  }
}
