import Foundation
import TestSupport
import Testing

@Suite("A first start")
struct FirstStartTests {
  @Test("a start with an empty folder and the stop log no warning and no error")
  func log() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let service = try await RunningService(folder: folder)
    // The versions of libraries are logged last during a start, by their own thread.
    try await eventually { service.log.contains("\"message\":\"libraries\"") }
    #expect(try await service.stop() == 0)
    let lines = service.log.split(separator: "\n")
    let levels = try lines.map { line -> String in
      let record = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
      return try #require(record?["level"] as? String, "\(line)")
    }
    #expect(Set(levels).isSubset(of: ["info", "notice"]), "\(service.log)")
  }
}
