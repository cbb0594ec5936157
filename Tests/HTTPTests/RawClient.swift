import Foundation
import Glibc
import HTTP
import HTTPTypes
import Synchronization
import TestSupport

/// Runs blocking work on its own thread. The shared threads are for the handlers under test.
func blocking<T: Sendable>(_ work: @escaping @Sendable () throws -> T) async throws -> T {
  try await withCheckedThrowingContinuation { continuation in
    Thread.detachNewThread { continuation.resume(with: Result { try work() }) }
  }
}

/// Waits until a condition holds, for at most a test's timeout.
func eventually(_ holds: @Sendable () -> Bool) async -> Bool {
  let end = ContinuousClock.now + patience
  while !holds() {
    guard ContinuousClock.now < end else { return false }
    try? await Task.sleep(for: .milliseconds(2))
  }
  return true
}

private let patientSeconds = Int(patience / .seconds(1))

/// A TCP connection that sends exactly the given bytes.
final class RawClient: Sendable {
  struct Failure: Error { let what: String }
  struct Answer: Sendable {
    var status = 0
    var head = ""
    var body = ""
    func field(_ name: String) -> String? {
      for line in head.split(separator: "\r\n").dropFirst() {
        let parts = line.split(separator: ":", maxSplits: 1)
        if parts[0].lowercased() == name.lowercased() {
          return parts.count > 1 ? parts[1].trimmingCharacters(in: .whitespaces) : ""
        }
      }
      return nil
    }
  }

  let descriptor: Int32
  private let pending = Mutex<[UInt8]>([])

  init(
    _ port: Int, host: String = "127.0.0.1", timeout: Int = patientSeconds
  ) throws {
    var hints = addrinfo()
    hints.ai_flags = AI_NUMERICHOST
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    var found: UnsafeMutablePointer<addrinfo>?
    guard getaddrinfo(host, String(port), &hints, &found) == 0, let found else {
      throw Failure(what: "getaddrinfo")
    }
    defer { freeaddrinfo(found) }
    descriptor = socket(found.pointee.ai_family, Int32(SOCK_STREAM.rawValue), 0)
    var limit = timeval(tv_sec: timeout, tv_usec: 0)
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    guard connect(descriptor, found.pointee.ai_addr, found.pointee.ai_addrlen) == 0 else {
      throw Failure(what: "connect: \(errno)")
    }
  }

  deinit { close(descriptor) }

  func send(_ text: String) throws { try send(Array(text.utf8)) }

  func send(_ bytes: [UInt8]) throws {
    guard try sendSome(bytes) == bytes.count else { throw Failure(what: "send: \(errno)") }
  }

  /// Sends until it would block for longer than the timeout, and returns how many bytes were sent.
  func sendSome(_ bytes: [UInt8]) throws -> Int {
    var sent = 0
    while sent < bytes.count {
      let count = bytes[sent...].withUnsafeBytes {
        Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
      }
      if count <= 0 { break }
      sent += count
    }
    return sent
  }

  func sendTimeout(milliseconds: Int = patientSeconds * 1_000) {
    var limit = timeval(tv_sec: milliseconds / 1000, tv_usec: milliseconds % 1000 * 1000)
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
  }

  /// Sets the timeout for receiving from now on.
  func receiveTimeout(seconds: Int = patientSeconds) {
    var time = timeval(tv_sec: seconds, tv_usec: 0)
    setsockopt(
      descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
  }

  func shutdownSending() { shutdown(descriptor, Int32(SHUT_WR)) }

  /// Receives some bytes; nil when the server has closed the connection, even by a reset.
  private func receive() throws -> [UInt8]? {
    let waiting = pending.withLock { bytes in
      defer { bytes = [] }
      return bytes
    }
    if !waiting.isEmpty { return waiting }
    var buffer = [UInt8](repeating: 0, count: 65536)
    let count = recv(descriptor, &buffer, buffer.count, 0)
    if count < 0 && errno == ECONNRESET { return nil }
    guard count >= 0 else { throw Failure(what: "recv: \(errno)") }
    return count == 0 ? nil : Array(buffer.prefix(count))
  }

  /// Reads until the end of the connection.
  func readToEnd() throws -> String {
    var all: [UInt8] = []
    while let bytes = try receive() { all += bytes }
    return String(decoding: all, as: UTF8.self)
  }

  /// Reads up to and including a text. Fails if it does not arrive.
  @discardableResult
  func read(upTo text: String) throws -> String {
    var all: [UInt8] = []
    let mark = Array(text.utf8)
    while true {
      if let end = all.firstRange(of: mark)?.upperBound {
        let rest = Array(all[end...])
        pending.withLock { $0 = rest }
        return String(decoding: all[..<end], as: UTF8.self)
      }
      guard let more = try receive() else {
        throw Failure(what: "closed after \(String(decoding: all, as: UTF8.self))")
      }
      all += more
    }
  }

  /// Whether the server has closed the connection without sending more.
  func isClosed() throws -> Bool { try receive() == nil }

  /// Reads one response. Bytes after it are kept for the next call.
  func answer(toHead: Bool = false) throws -> Answer {
    var all: [UInt8] = []
    let blank = Array("\r\n\r\n".utf8)
    while true {
      if let end = all.firstRange(of: blank) {
        var answer = Answer()
        answer.head = String(decoding: all[..<end.lowerBound], as: UTF8.self)
        answer.status = Int(answer.head.split(separator: " ")[1]) ?? 0
        let length = toHead ? 0 : Int(answer.field("content-length") ?? "0")!
        while all.count < end.upperBound + length {
          guard let more = try receive() else { throw Failure(what: "closed within the content") }
          all += more
        }
        answer.body = String(
          decoding: all[end.upperBound..<(end.upperBound + length)], as: UTF8.self)
        let rest = Array(all[(end.upperBound + length)...])
        pending.withLock { $0 = rest }
        return answer
      }
      guard let more = try receive() else {
        throw Failure(what: "closed after \(String(decoding: all, as: UTF8.self))")
      }
      all += more
    }
  }

  /// Sends a request and reads its response.
  func exchange(_ request: String) throws -> Answer {
    try send(request)
    return try answer()
  }
}
