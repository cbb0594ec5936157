internal import Glibc
internal import Synchronization

/// The URLs of a run, handed out one by one: the arguments, with the list on standard input in the place of `-`.
///
/// Its lock is held while the list is waited for: whoever else wants a URL then would wait for the same.
final class Sources: Sendable {
  private struct State {
    var arguments: ArraySlice<String>
    var list: LineReader?
  }

  private let state: Mutex<State>

  init(_ arguments: [String]) { state = Mutex(State(arguments: arguments[...])) }

  /// Waits for the next one; nil after the last.
  func next() throws(SystemError) -> LineReader.Line? {
    let result = state.withLock { state -> Result<LineReader.Line?, SystemError> in
      do throws(SystemError) { return .success(try Self.next(&state)) } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  private static func next(_ state: inout State) throws(SystemError) -> LineReader.Line? {
    while true {
      if let list = state.list {
        if let line = try list.next() { return line }
        state.list = nil
      }
      guard let argument = state.arguments.popFirst() else { return nil }
      if argument != "-" { return LineReader.line(argument) }
      state.list = LineReader(STDIN_FILENO)
    }
  }
}
