internal import Glibc
internal import Synchronization

/// Starts a thread that runs `body`. If no thread can be created for five seconds, the process prints an error and exits.
///
/// Without the thread, its callers would wait forever. After an exit the service manager can start the process again. Use
/// this only for threads that start with the service, when no work can be lost. Otherwise use
/// ``startThreadIfPossible(named:_:)``.
///
/// - Parameters:
///   - name: the name in `top -H` and debuggers; Linux keeps 15 bytes of it.
///   - niceness: 0…19, lowers the thread's scheduling priority (nice(2), which applies to one thread on Linux). Threads
///     that it starts inherit it.
package func startThread(
  named name: String, niceness: Int = 0, _ body: @escaping @Sendable () -> Void
) {
  let start = Start {
    nameThisThread(name)
    if niceness > 0 { _ = nice(Int32(niceness)) }
    body()
  }
  for _ in 0..<500 {
    if create(start) { return }
    // Other threads of this user or container may end.
    usleep(10_000)
  }
  let words = Array("imagefetch: internal fault: \(noThreadsMessage)\n".utf8)
  _ = write(STDERR_FILENO, words, words.count)
  // EX_SOFTWARE of sysexits.h.
  _exit(70)
}

/// The error message for operators if the system refuses new threads.
package let noThreadsMessage =
  "no thread can be started: raise TasksMax or the process limit of the container or user"

/// Starts a thread that runs `body`.
/// - Returns: False if the system can't create a thread now.
package func startThreadIfPossible(named name: String, _ body: @escaping @Sendable () -> Void)
  -> Bool
{
  create(
    Start {
      nameThisThread(name)
      body()
    })
}

/// Whether the system can run `count` more threads. If it can't, Swift's own thread pool hangs without a message.
package func canStartThreads(_ count: Int) -> Bool {
  let gate = Gate()
  return gate.mutex.withLock { _ in
    // Each thread waits for the mutex, so that all of them exist at the same time.
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

/// Sets the thread's name through `/proc`, because Swift's Glibc module lacks `pthread_setname_np`.
private func nameThisThread(_ name: String) {
  let file = open("/proc/thread-self/comm", O_WRONLY | O_CLOEXEC)
  guard file >= 0 else { return }
  let bytes = Array(name.utf8.prefix(15))
  _ = write(file, bytes, bytes.count)
  close(file)
}
