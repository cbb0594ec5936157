internal import Glibc
internal import Synchronization

/// Starts a thread that runs `body` and ends with it. Where none can be had for five seconds the process ends, and says so: what
/// was to run never would, and whoever waits for it would hang, where a service manager can start us anew. Only for what is
/// started with the service, and has nothing under way that could be lost; else there is ``startThreadIfPossible(named:_:)``.
///
/// - Parameters:
///   - name: shown by `top -H` and debuggers; Linux keeps 15 bytes of it.
///   - niceness: how far the thread steps back where others want the core (nice(2), which is the thread's own in Linux);
///     what it starts in its turn is as nice.
public func startThread(
  named name: String, niceness: Int = 0, _ body: @escaping @Sendable () -> Void
) {
  let start = Start {
    nameThisThread(name)
    if niceness > 0 { _ = nice(Int32(niceness)) }
    body()
  }
  for _ in 0..<500 {
    if create(start) { return }
    // Others of this user's, or of this container's, may end.
    usleep(10_000)
  }
  let words = Array("imagefetch: internal fault: \(noThreads)\n".utf8)
  _ = write(STDERR_FILENO, words, words.count)
  // EX_SOFTWARE of sysexits.h.
  _exit(70)
}

/// What an operator does about it.
public let noThreads =
  "no thread can be started: raise TasksMax, the container's limit of processes or the user's"

/// Starts a thread that runs `body` and ends with it.
/// - Returns: false where none can be had now.
public func startThreadIfPossible(named name: String, _ body: @escaping @Sendable () -> Void)
  -> Bool
{
  create(
    Start {
      nameThisThread(name)
      body()
    })
}

/// Whether so many threads can be had at once. Swift's own are waited for without a word and without an end where they can't.
public func canStartThreads(_ count: Int) -> Bool {
  let gate = Gate()
  return gate.mutex.withLock { _ in
    // Each stays until the last is there.
    (0..<count).allSatisfy { _ in create(Start { gate.mutex.withLock { _ in } }) }
  }
}

private final class Gate: Sendable { let mutex = Mutex(()) }

private func create(_ start: Start) -> Bool {
  var attributes = pthread_attr_t()
  pthread_attr_init(&attributes)
  defer { pthread_attr_destroy(&attributes) }
  pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
  var thread = pthread_t()
  let context = Unmanaged.passRetained(start)
  let isStarted = pthread_create(&thread, &attributes, run, context.toOpaque()) == 0
  if !isStarted { context.release() }
  return isStarted
}

private final class Start {
  let body: @Sendable () -> Void

  init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

private func run(_ context: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
  if let context { Unmanaged<Start>.fromOpaque(context).takeRetainedValue().body() }
  return nil
}

/// pthread_setname_np isn't in Swift's Glibc module.
private func nameThisThread(_ name: String) {
  let file = open("/proc/thread-self/comm", O_WRONLY | O_CLOEXEC)
  guard file >= 0 else { return }
  let bytes = Array(name.utf8.prefix(15))
  _ = write(file, bytes, bytes.count)
  close(file)
}
