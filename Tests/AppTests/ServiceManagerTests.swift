import Foundation
import Synchronization
import Testing

@Suite("A service manager", .timeLimit(.minutes(15)))
struct ServiceManagerTests {
  @Test("the manager is notified when the service is ready, lives and stops")
  func hears() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let ear = try Ear("/tmp/imagefetch-\(UUID().uuidString.prefix(8))")
    let service = try await RunningService(
      folder: folder, settings: ["NOTIFY_SOCKET": ear.path, "WATCHDOG_USEC": "200000"])
    try await eventually { ear.heard.contains("READY=1") }
    let before = ear.heard.count { $0 == "WATCHDOG=1" }
    try await eventually { ear.heard.count { $0 == "WATCHDOG=1" } >= before + 3 }
    #expect(!ear.heard.contains("STOPPING=1"))
    #expect(try await service.stop() == 0)
    try await eventually { ear.heard.contains("STOPPING=1") }
    let ready = ear.heard.filter { $0 == "READY=1" }
    #expect(ready.count == 1)
  }

  @Test("the service works without a manager, or without a watchdog")
  func absent() async throws {
    let settings = ["NOTIFY_SOCKET": "/nonexistent/socket", "WATCHDOG_USEC": "nonsense"]
    try await withService(settings) { service in
      let answer = try await service.get("/readyz")
      #expect(answer.status == 200)
    }
  }

  /// Receives the messages at a manager's socket.
  private final class Ear: Sendable {
    let path: String
    private let descriptor: Int32
    private let messages = Mutex<[String]>([])

    var heard: [String] { messages.withLock { $0 } }

    init(_ path: String) throws {
      self.path = path
      descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
      try #require(descriptor >= 0)
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
      let size = socklen_t(MemoryLayout<sockaddr_un>.size)
      let status = withUnsafePointer(to: &address) { address in
        address.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, size) }
      }
      try #require(status == 0)
      Thread.detachNewThread { [self] in
        var buffer = [UInt8](repeating: 0, count: 256)
        while true {
          let count = recv(descriptor, &buffer, buffer.count, 0)
          if count <= 0 { return }
          let message = String(decoding: buffer.prefix(count), as: UTF8.self)
          messages.withLock { $0.append(message) }
          if message == "STOPPING=1" { return }
        }
      }
    }

    deinit {
      close(descriptor)
      unlink(path)
    }
  }
}
