import CSpawn
public import Foundation
import Synchronization

/// A program that a test needs beside it.
///
/// Not Foundation's `Process`: that may miss a program's end and then spins for ever, it waits for an inherited descriptor
/// to close which another long-lived child holds open, and it hands on the signals that the calling thread blocks.
///
/// A thread of its own waits for each one's end: one that has ended and isn't reaped has Swift Testing spin, which looks for
/// the ends of its own and finds that one again and again.
public final class ChildProcess: Sendable {
  /// Where one of its three streams leads.
  public enum Stream: Sendable {
    /// Where ours does.
    case inherited
    /// Nowhere.
    case null
    /// To a descriptor of ours.
    case descriptor(Int32)
    /// To the other end of a pipe; the end that it takes is closed here.
    case pipe(Pipe)
  }

  /// Why it doesn't run.
  public struct Failure: Error, CustomStringConvertible {
    public let description: String
  }

  /// Its number; another's, perhaps, once it was found to have ended.
  public var id: Int32 { life.id }
  private let life: Life
  private let endsWithOwner: Bool

  private final class Life: Sendable {
    let id: Int32
    /// What `waitpid` said of its end.
    private let end = Mutex<Int32?>(nil)

    init(_ id: Int32) { self.id = id }

    /// Blocks the thread until it has ended.
    func wait() {
      // Left to be reaped under the lock: until then its number is its own, and others can ask and signal meanwhile. Whoever
      // finds that it was reaped finds its end there, too.
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

  /// Starts it, with no descriptor but its three streams and with no signal blocked.
  /// - Parameters:
  ///   - arguments: a path first, or a name that is looked for in our `PATH`.
  ///   - environment: nil: ours.
  ///   - directory: where it works; nil: where we do.
  ///   - endsWithOwner: whether it is killed when nobody holds this any more.
  public init(
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

  /// Whether it has not ended.
  public var isRunning: Bool { status == nil }

  /// Its exit status, or the number of the signal that ended it; nil until then.
  public var status: Int32? { life.reap().map(Self.status) }

  /// Blocks the thread until it has ended.
  /// - Returns: its exit status, or the number of the signal that ended it.
  @discardableResult
  public func wait() -> Int32 {
    if let status { return status }
    life.wait()
    return status ?? -1
  }

  /// Sends it a signal, unless it has ended.
  public func signal(_ number: Int32) { life.signal(number) }

  private static func status(_ word: Int32) -> Int32 {
    word & 0x7f == 0 ? (word >> 8) & 0xff : word & 0x7f
  }

  /// What a program left that ran to its end.
  public struct Ended: Sendable {
    /// Its exit status, or the number of the signal that ended it.
    public let status: Int32
    /// What it printed.
    public let output: Data

    /// The same, as text.
    public var text: String { String(decoding: output, as: UTF8.self) }
  }

  /// Runs a program to its end, and blocks the thread until then.
  /// - Parameters:
  ///   - input: what it reads, all of it before it prints more than a pipe holds; nil: what we would.
  ///   - errors: a pipe has to hold all of them.
  @discardableResult
  public static func run(
    _ arguments: [String], environment: [String: String]? = nil, in directory: String? = nil,
    input: Data? = nil, errors: Stream = .inherited
  ) throws -> Ended {
    let (source, output) = (input.map { _ in Pipe() }, Pipe())
    let child = try ChildProcess(
      arguments, environment: environment, in: directory,
      input: source.map { .pipe($0) } ?? .inherited, output: .pipe(output), errors: errors)
    if let source, let input {
      // One that wants no more of it says so by its status.
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

  /// Runs a program to its end; a thread of its own waits, as Swift's shared ones must not.
  @discardableResult
  public static func run(
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
