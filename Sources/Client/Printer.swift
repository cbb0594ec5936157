internal import Glibc
internal import Synchronization

/// Tells programs of finished jobs: a line each, written as it comes.
final class Printer: Sendable {
  private let descriptor: Int32?
  private let isQuiet: Bool
  private let turn = Mutex(())

  /// - Parameters:
  ///   - hasBars: whether people see the jobs on standard error.
  ///   - isQuiet: whether only failures are told of.
  ///   - givesImage: whether standard output is the image's.
  init(hasBars: Bool, isQuiet: Bool, givesImage: Bool) {
    self.isQuiet = isQuiet
    if givesImage {
      descriptor = hasBars ? nil : STDERR_FILENO
    } else {
      // On one terminal the board's lines are enough.
      descriptor = hasBars && isatty(STDOUT_FILENO) == 1 ? nil : STDOUT_FILENO
    }
  }

  func print(_ outcome: Outcome, url: String) throws(SystemError) {
    guard let descriptor else { return }
    if case .saved = outcome, isQuiet || descriptor == STDERR_FILENO { return }
    let result = turn.withLock { _ -> SystemError? in
      do throws(SystemError) {
        try Descriptor.write(outcome.plainLine(for: url), to: descriptor)
        return nil
      } catch {
        return error
      }
    }
    if let result { throw result }
  }
}
