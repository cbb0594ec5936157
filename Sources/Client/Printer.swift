internal import Glibc
internal import Synchronization

/// Tells programs of finished jobs: a line each, written as it comes.
final class Printer: Sendable {
  private let descriptor: Int32?
  private let isQuiet: Bool
  private let isJSON: Bool
  private let turn = Mutex(())

  /// - Parameters:
  ///   - hasBars: whether people see the jobs on standard error.
  ///   - isQuiet: whether only failures are told of.
  ///   - isJSON: whether lines are JSON objects.
  ///   - givesImage: whether standard output is the image's.
  init(hasBars: Bool, isQuiet: Bool, isJSON: Bool, givesImage: Bool) {
    (self.isQuiet, self.isJSON) = (isQuiet, isJSON)
    if givesImage {
      descriptor = hasBars ? nil : STDERR_FILENO
    } else {
      // On one terminal the board's lines are enough.
      descriptor = hasBars && isatty(STDOUT_FILENO) == 1 ? nil : STDOUT_FILENO
    }
  }

  func print(_ outcome: Outcome, url: String) throws(SystemError) {
    guard let descriptor else { return }
    let isFailure = if case .failed = outcome { true } else { false }
    if !isFailure, isQuiet || descriptor == STDERR_FILENO { return }
    let line = isJSON ? outcome.jsonLine(for: url) : outcome.plainLine(for: url)
    let result = turn.withLock { _ -> SystemError? in
      do throws(SystemError) {
        try Descriptor.write(line, to: descriptor)
        return nil
      } catch {
        return error
      }
    }
    if let result { throw result }
  }
}
