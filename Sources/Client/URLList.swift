internal import Glibc
internal import Synchronization

/// A list of URLs, one per line, from a file or standard input.
package final class URLList: Sendable {
  /// Why the list cannot be read; shown to the user.
  package struct Mistake: Error, Equatable {
    package let text: String
  }

  let descriptor: Int32
  /// `-` for standard input.
  let name: String

  /// - Parameter path: A file's path; `-` for standard input.
  package init(_ path: String) throws(Mistake) {
    name = path
    descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      throw Mistake(text: "\(PlainText.line(path)): \(SystemError(code: errno).text)")
    }
  }

  deinit {
    if descriptor > STDERR_FILENO { close(descriptor) }
  }

  /// The list's name in error messages.
  var shownName: String { name == "-" ? "standard input" : PlainText.line(name) }

  /// Counts the non-blank lines of a file. Nil for a source that can be read only once, such as a pipe.
  func count() -> Int? {
    var found = stat()
    guard fstat(descriptor, &found) == 0, found.st_mode & S_IFMT == S_IFREG else { return nil }
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var (offset, lines, isBlank) = (0, 0, true)
    // A byte order mark alone is not a line.
    if pread(descriptor, &buffer, 3, 0) == 3, buffer.starts(with: [0xEF, 0xBB, 0xBF]) {
      offset = 3
    }
    while true {
      let count = pread(descriptor, &buffer, buffer.count, offset)
      guard count > 0 else { return count == 0 ? lines : nil }
      offset += count
      for byte in buffer[..<count] {
        switch byte {
        case 0x0A: isBlank = true
        case 0x20, 0x09, 0x0D: break
        default:
          if isBlank { lines += 1 }
          isBlank = false
        }
      }
    }
  }
}

/// Returns the URLs of a run one by one: the arguments, then each list line by line.
///
/// Its lock is held while it waits for a list. Another thread that needs a URL would have to wait for the
/// same line.
final class Sources: Sendable {
  /// A line and its number in the run, from 1 on.
  struct Item: Equatable {
    var line: URLLineReader.Line
    var index: Int
  }

  /// Why the next URL could not be read.
  struct Failure: Error, Equatable {
    let text: String
  }

  private struct State {
    var rest: ArraySlice<Run.Source>
    var reader: URLLineReader?
    var handedOut = 0
  }

  private let state: Mutex<State>
  private let all: [Run.Source]
  private let counted = Mutex(Int?.none)

  init(_ all: [Run.Source]) {
    self.all = all
    state = Mutex(State(rest: all[...]))
  }

  /// The number of URLs in the run, once it is known.
  var total: Int? { counted.withLock { $0 } }

  /// Counts the URLs by reading all files. The length of a pipe is known only at its end.
  func count() {
    var total = 0
    for source in all {
      switch source {
      case .url: total += 1
      case .list(let list):
        guard let count = list.count() else { return }
        total += count
      }
    }
    counted.withLock { $0 = $0 ?? total }
  }

  /// Waits for the next URL. Nil after the last.
  func next() throws(Failure) -> Item? {
    let result = state.withLock { state -> Result<Item?, Failure> in
      do throws(Failure) {
        let line = try Self.next(&state)
        // The final count is used, because a file may have changed since it was counted.
        if line == nil { counted.withLock { $0 = state.handedOut } }
        guard let line else { return .success(nil) }
        state.handedOut += 1
        return .success(Item(line: line, index: state.handedOut))
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  private static func next(_ state: inout State) throws(Failure) -> URLLineReader.Line? {
    while let source = state.rest.first {
      switch source {
      case .url(let url):
        state.rest.removeFirst()
        return URLLineReader.line(url)
      case .list(let list):
        let reader = state.reader ?? URLLineReader(list.descriptor)
        state.reader = reader
        do throws(SystemError) {
          if let line = try reader.next() { return line }
        } catch {
          throw Failure(text: "\(list.shownName): \(error.text)")
        }
        state.reader = nil
        state.rest.removeFirst()
      }
    }
    return nil
  }
}
