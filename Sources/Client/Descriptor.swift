internal import Glibc
internal import Synchronization

/// A failed system call's errno.
struct SystemError: Error, Equatable {
  let code: Int32

  /// The system's error message.
  var text: String { String(cString: strerror(code)) }
}

/// Complete writes to a file descriptor.
enum Descriptor {
  /// Writes all bytes. Blocks until the reader has accepted them.
  static func write(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) throws(SystemError) {
    var rest = bytes[...]
    while !rest.isEmpty {
      let part = UnsafeRawBufferPointer(rebasing: rest)
      let count = Glibc.write(descriptor, part.baseAddress, part.count)
      if count >= 0 {
        rest = rest.dropFirst(count)
      } else if errno == EAGAIN {
        // The process that opened the descriptor has made it non-blocking.
        var wait = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        poll(&wait, 1, -1)
      } else if errno != EINTR {
        throw SystemError(code: errno)
      }
    }
  }

  static func write(_ text: String, to descriptor: Int32) throws(SystemError) {
    var failure: SystemError?
    var text = text
    text.withUTF8 { bytes in
      do throws(SystemError) { try write(UnsafeRawBufferPointer(bytes), to: descriptor) } catch {
        failure = error
      }
    }
    if let failure { throw failure }
  }

  /// Copies a file from its beginning to another descriptor.
  static func copy(_ source: Int32, to target: Int32) throws(SystemError) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var offset = 0
    while true {
      let count = pread(source, &buffer, buffer.count, offset)
      if count < 0 { throw SystemError(code: errno) }
      if count == 0 { return }
      offset += count
      let failure = buffer.withUnsafeBytes { bytes -> SystemError? in
        do throws(SystemError) {
          try write(UnsafeRawBufferPointer(rebasing: bytes[..<count]), to: target)
          return nil
        } catch {
          return error
        }
      }
      if let failure { throw failure }
    }
  }
}

/// A flag that stops a run: threads begin nothing new and stop waiting.
final class CancellationFlag: Sendable {
  private let isUp = Atomic(false)

  /// Whether the flag was raised. It is never lowered.
  var isRaised: Bool { isUp.load(ordering: .acquiring) }

  func raise() { isUp.store(true, ordering: .releasing) }
}
