internal import Glibc
internal import Synchronization

/// A list of URLs, one a line: a file, or standard input.
public final class URLList: Sendable {
  /// Why it can't be read; for people.
  public struct Mistake: Error, Equatable {
    public let text: String
  }

  let descriptor: Int32
  /// `-` for standard input.
  let name: String

  /// Opens it.
  /// - Parameter path: `-` for standard input.
  public init(_ path: String) throws(Mistake) {
    name = path
    descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      throw Mistake(text: "\(PlainText.line(path)): \(SystemError(code: errno).text)")
    }
  }

  deinit {
    if descriptor > STDERR_FILENO { close(descriptor) }
  }

  /// How it is called where it can't be read any further.
  var shownName: String { name == "-" ? "standard input" : PlainText.line(name) }

  /// How many lines of a file hold something; nil for what can be read only once.
  func count() -> Int? {
    var found = stat()
    guard fstat(descriptor, &found) == 0, found.st_mode & S_IFMT == S_IFREG else { return nil }
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var (offset, lines, isBlank) = (0, 0, true)
    // A byte order mark alone is no line.
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

/// The URLs of a run, handed out one by one: the arguments, then each list, line by line.
///
/// Its lock is held while a list is waited for: whoever else wants a URL then would wait for the same.
final class Sources: Sendable {
  /// A line, and which one of all it is, from 1 on.
  struct Item: Equatable {
    var line: LineReader.Line
    var index: Int
  }

  /// Why there is no next one.
  struct Failure: Error, Equatable {
    let text: String
  }

  private struct State {
    var rest: ArraySlice<Run.Source>
    var reader: LineReader?
    var handedOut = 0
  }

  private let state: Mutex<State>
  private let all: [Run.Source]
  private let counted = Mutex(Int?.none)

  init(_ all: [Run.Source]) {
    self.all = all
    state = Mutex(State(rest: all[...]))
  }

  /// How many there are in all, once that is known.
  var total: Int? { counted.withLock { $0 } }

  /// Reads files through to know how many there are in all; what comes in by a pipe is known at its end only.
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

  /// Waits for the next one; nil after the last.
  func next() throws(Failure) -> Item? {
    let result = state.withLock { state -> Result<Item?, Failure> in
      do throws(Failure) {
        let line = try Self.next(&state)
        // A file may have changed since it was counted.
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

  private static func next(_ state: inout State) throws(Failure) -> LineReader.Line? {
    while let source = state.rest.first {
      switch source {
      case .url(let url):
        state.rest.removeFirst()
        return LineReader.line(url)
      case .list(let list):
        let reader = state.reader ?? LineReader(list.descriptor)
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
