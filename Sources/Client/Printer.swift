internal import Glibc
internal import Synchronization

/// Prints a line for programs when a job has finished.
final class Printer: Sendable {
  private let descriptor: Int32?
  private let isQuiet: Bool
  private let isJSON: Bool
  private let lock = Mutex(())

  /// - Parameters:
  ///   - hasBars: Whether progress is displayed on standard error.
  ///   - isQuiet: Whether only failures are printed.
  ///   - isJSON: Whether lines are JSON objects.
  ///   - givesImage: Whether standard output receives the image.
  init(hasBars: Bool, isQuiet: Bool, isJSON: Bool, givesImage: Bool) {
    (self.isQuiet, self.isJSON) = (isQuiet, isJSON)
    if givesImage {
      descriptor = hasBars ? nil : STDERR_FILENO
    } else {
      // If standard output is the same terminal, the lines of the progress display are enough.
      descriptor = hasBars && isatty(STDOUT_FILENO) == 1 ? nil : STDOUT_FILENO
    }
  }

  func print(_ outcome: Outcome, url: String) throws(SystemError) {
    guard let descriptor else { return }
    let isFailure = if case .failed = outcome { true } else { false }
    if !isFailure, isQuiet || descriptor == STDERR_FILENO { return }
    let line = isJSON ? outcome.jsonLine(for: url) : outcome.plainLine(for: url)
    let result = lock.withLock { _ -> SystemError? in
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
