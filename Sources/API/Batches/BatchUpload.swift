internal import Jobs
internal import Synchronization

/// The state of one upload. Its pieces may be read on different threads, but only one at a time.
final class BatchUpload: Sendable {
  private struct State {
    var format: any BatchFormat
    var reader: BatchLineReader
    var mark = ByteOrderMark()
  }

  private let state: Mutex<State>

  init(_ format: any BatchFormat, into reader: BatchLineReader) {
    state = Mutex(State(format: format, reader: reader))
  }

  /// Reads a piece of the content. A byte order mark at the start of the content is removed.
  func read(_ piece: [UInt8]) throws(Problem) {
    try change { state throws(Problem) in
      let text = state.mark.removed(from: piece)
      try state.format.read(text, into: &state.reader)
    }
  }

  /// Reads the rest at the end of the content.
  /// - Parameter completesContent: whether the content is complete, so that repeated requests must not have more.
  func finish(completesContent: Bool = false) throws(Problem) {
    try change { state throws(Problem) in
      let rest = state.mark.rest()
      try state.format.read(rest, into: &state.reader)
      try state.format.finish(into: &state.reader)
      if completesContent { state.reader.completeContent() }
    }
  }

  /// See ``BatchLineReader/verdict``.
  var verdict: Bool? { state.withLock { $0.reader.verdict } }
  /// See ``BatchLineReader/finalVerdict``.
  var finalVerdict: Bool? { state.withLock { $0.reader.finalVerdict } }

  /// Returns the lines read since the last call, and whether the upload has more lines than a batch may have.
  func dequeueLines() -> (parts: [NewLines], isOverfull: Bool) {
    state.withLock { ($0.reader.dequeueLines(), $0.reader.exceedsLineLimit) }
  }

  private func change(
    _ body: (inout State) throws(Problem) -> Void
  ) throws(Problem) {
    try state.withLock { state throws(Problem) in try body(&state) }
  }
}
