internal import CMicroHTTPD
import Glibc

/// An epoll set with an eventfd that wakes it. Watched descriptors leave the set when they are closed.
final class EventSet: Sendable {
  private let descriptor: Int32
  private let wakeDescriptor: Int32

  /// The name returned after `wake` was called.
  static let woken: UInt64 = .max

  init() throws(ServerError) {
    descriptor = epoll_create1(Int32(EPOLL_CLOEXEC))
    wakeDescriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    guard descriptor >= 0, wakeDescriptor >= 0 else {
      throw .resourcesExhausted(detail: String(cString: strerror(errno)))
    }
    add(wakeDescriptor, CMicroHTTPD_readable, as: Self.woken)
  }

  deinit {
    close(wakeDescriptor)
    close(descriptor)
  }

  @discardableResult
  func add(_ watched: Int32, _ events: UInt32, as name: UInt64) -> Bool {
    control(EPOLL_CTL_ADD, watched, events, name)
  }

  func change(_ watched: Int32, _ events: UInt32, as name: UInt64) {
    _ = control(EPOLL_CTL_MOD, watched, events, name)
  }

  func remove(_ watched: Int32) { _ = control(EPOLL_CTL_DEL, watched, 0, 0) }

  private func control(_ operation: Int32, _ watched: Int32, _ events: UInt32, _ name: UInt64)
    -> Bool
  {
    var event = epoll_event(events: events, data: epoll_data_t(u64: name))
    return epoll_ctl(descriptor, operation, watched, &event) == 0
  }

  /// Ends a wait; may be called from any thread.
  func wake() {
    var one: UInt64 = 1
    _ = write(wakeDescriptor, &one, 8)
  }

  /// Waits for events, at most this many milliseconds.
  /// - Returns: The names of the descriptors that are ready.
  func wait(milliseconds: Int) -> [UInt64] {
    withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 256) { events in
      let count = epoll_wait(
        descriptor, events.baseAddress!, Int32(events.count), Int32(milliseconds))
      let names = (0..<Int(max(0, count))).map { events[$0].data.u64 }
      if names.contains(Self.woken) {
        var counter: UInt64 = 0
        _ = read(wakeDescriptor, &counter, 8)
      }
      return names
    }
  }
}
