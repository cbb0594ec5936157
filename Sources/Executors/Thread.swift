internal import Glibc

/// Starts a thread that runs `body` and ends with it.
/// - Parameters:
///   - name: shown by `top -H` and debuggers; Linux keeps 15 bytes of it.
///   - niceness: how far the thread steps back where others want the core (nice(2), which is the thread's own in Linux);
///     what it starts in its turn is as nice.
public func startThread(
  named name: String, niceness: Int = 0, _ body: @escaping @Sendable () -> Void
) {
  let start = Unmanaged.passRetained(
    Start {
      nameThisThread(name)
      if niceness > 0 { _ = nice(Int32(niceness)) }
      body()
    })
  var attributes = pthread_attr_t()
  pthread_attr_init(&attributes)
  defer { pthread_attr_destroy(&attributes) }
  pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
  var thread = pthread_t()
  for _ in 0..<500 {
    let code = pthread_create(&thread, &attributes, run, start.toOpaque())
    if code == 0 { return }
    // Others of this user's, or of this container's, may end.
    usleep(10_000)
  }
  // What was to run would never: whoever waits for it would hang, where a service manager could start us anew.
  fatalError("no thread can be started for five seconds: raise TasksMax or the limit of processes")
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
