import CSpawn
package import Foundation
import Synchronization

/// A child process that a test runs.
///
/// It replaces Foundation's `Process`, which can miss a program's end and then loops forever. `Process` also waits until
/// inherited descriptors are closed, even by other long-lived children, and passes on the calling thread's blocked signals.
///
/// A separate thread waits for each process, so that it is reaped at once. Swift Testing loops if it finds an ended process that
/// is not its own and not reaped.
package final class ChildProcess: Sendable {
  /// Where one of the three standard streams is connected to.
  package enum Stream: Sendable {
    /// The test process's own stream.
    case inherited
    /// `/dev/null`.
    case null
    /// A descriptor of the test process.
    case descriptor(Int32)
    /// The other end of a pipe. The end that the child uses is closed in the test process.
    case pipe(Pipe)
  }

  /// Why the program could not be started.
  package struct Failure: Error, CustomStringConvertible {
    package let description: String
  }

  /// The process id. After the process has ended, another process may have it.
  package var id: Int32 { life.id }
  private let life: Life
  private let endsWithOwner: Bool

  private final class Life: Sendable {
    let id: Int32
    /// The status from `waitpid`.
    private let end = Mutex<Int32?>(nil)

    init(_ id: Int32) { self.id = id }

    /// Blocks the thread until the process has ended.
    func wait() {
      // Reap it under the lock, because until then no other process can have its id. Others may query and signal it meanwhile.
      // Its status is set under the same lock.
      var info = siginfo_t()
      while waitid(P_PID, id_t(id), &info, WEXITED | WNOWAIT) == -1, errno == EINTR {}
      _ = reap()
    }

    func reap() -> Int32? {
      end.withLock { end in
        var word: Int32 = 0
        if end == nil, waitpid(id, &word, WNOHANG) == id { end = word }
        return end
      }
    }

    func signal(_ number: Int32) {
      end.withLock { if $0 == nil { kill(id, number) } }
    }
  }

  /// Starts the program with no descriptors except its three streams, and with no blocked signals.
  /// - Parameters:
  ///   - arguments: the program's path, or a name to search in `PATH`, and its arguments.
  ///   - environment: nil for the test process's environment.
  ///   - directory: the working directory; nil for the test process's.
  ///   - endsWithOwner: whether the process is killed when this object is deallocated.
  package init(
    _ arguments: [String], environment: [String: String]? = nil, in directory: String? = nil,
    input: Stream = .inherited, output: Stream = .inherited, errors: Stream = .inherited,
    endsWithOwner: Bool = false
  ) throws {
    let null = open("/dev/null", O_RDWR | O_CLOEXEC)
    guard null >= 0 else { throw Failure(description: "no descriptor is left") }
    defer { close(null) }
    let streams = [(input, true), (output, false), (errors, false)]
    let descriptors: [Int32] = streams.map { stream, isInput in
      switch stream {
      case .inherited: -1
      case .null: null
      case .descriptor(let descriptor): descriptor
      case .pipe(let pipe): Self.end(of: pipe, isInput).fileDescriptor
      }
    }
    let environment = environment ?? ProcessInfo.processInfo.environment
    let (words, settings) = (
      Self.words(arguments), Self.words(environment.map { "\($0)=\($1)" })
    )
    defer { for word in words + settings { free(word) } }
    let id = spawn_program(words, settings, directory, descriptors)
    guard id > 0 else {
      throw Failure(description: "\(arguments[0]): \(String(cString: strerror(-id)))")
    }
    let life = Life(id)
    (self.life, self.endsWithOwner) = (life, endsWithOwner)
    Thread.detachNewThread { life.wait() }
    for case (.pipe(let pipe), let isInput) in streams { try Self.end(of: pipe, isInput).close() }
  }

  deinit {
    guard endsWithOwner else { return }
    signal(SIGKILL)
    _ = wait()
  }

  private static func end(of pipe: Pipe, _ isInput: Bool) -> FileHandle {
    isInput ? pipe.fileHandleForReading : pipe.fileHandleForWriting
  }

  private static func words(_ words: [String]) -> [UnsafeMutablePointer<CChar>?] {
    words.map { strdup($0) } + [nil]
  }

  /// Whether the process is running.
  package var isRunning: Bool { status == nil }

  /// The exit status, or the number of the signal that ended the process; nil while it runs.
  package var status: Int32? { life.reap().map(Self.status) }

  /// Blocks the thread until the process has ended.
  /// - Returns: The exit status, or the number of the signal that ended it.
  @discardableResult
  package func wait() -> Int32 {
    if let status { return status }
    life.wait()
    return status ?? -1
  }

  /// Sends a signal to the process unless it has ended.
  package func signal(_ number: Int32) { life.signal(number) }

  private static func status(_ word: Int32) -> Int32 {
    word & 0x7f == 0 ? (word >> 8) & 0xff : word & 0x7f
  }

  /// The result of a program that has ended.
  package struct Ended: Sendable {
    /// The exit status, or the number of the signal that ended it.
    package let status: Int32
    /// The bytes of standard output.
    package let output: Data

    /// Standard output as text.
    package var text: String { String(decoding: output, as: UTF8.self) }
  }

  /// Runs a program and blocks the thread until it ends.
  /// - Parameters:
  ///   - input: the bytes for standard input, written before the output is read; nil to inherit standard input.
  ///   - errors: where standard error goes. A pipe must be able to hold all of it.
  @discardableResult
  package static func run(
    _ arguments: [String], environment: [String: String]? = nil, in directory: String? = nil,
    input: Data? = nil, errors: Stream = .inherited
  ) throws -> Ended {
    let (source, output) = (input.map { _ in Pipe() }, Pipe())
    let child = try ChildProcess(
      arguments, environment: environment, in: directory,
      input: source.map { .pipe($0) } ?? .inherited, output: .pipe(output), errors: errors)
    if let source, let input {
      // If the program stops reading, its status shows that.
      withoutPipeSignal { try? source.fileHandleForWriting.write(contentsOf: input) }
      try source.fileHandleForWriting.close()
    }
    let printed = try output.fileHandleForReading.readToEnd() ?? Data()
    return Ended(status: child.wait(), output: printed)
  }

  private static func withoutPipeSignal(_ body: () -> Void) {
    var (signals, before, now) = (sigset_t(), sigset_t(), timespec())
    sigemptyset(&signals)
    sigaddset(&signals, SIGPIPE)
    pthread_sigmask(SIG_BLOCK, &signals, &before)
    body()
    while sigtimedwait(&signals, nil, &now) > 0 {}
    pthread_sigmask(SIG_SETMASK, &before, nil)
  }

  /// Runs a program to its end. A separate thread waits for it, because Swift's shared threads must not block.
  @discardableResult
  package static func run(
    _ arguments: [String], environment: [String: String]? = nil, in directory: String? = nil,
    input: Data? = nil, errors: Stream = .inherited
  ) async throws -> Ended {
    try await withCheckedThrowingContinuation { continuation in
      Thread.detachNewThread {
        continuation.resume(
          with: Result {
            try run(
              arguments, environment: environment, in: directory, input: input, errors: errors)
          })
      }
    }
  }
}
