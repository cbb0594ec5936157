import CPlant
import Digests
import Foundation
import TestSupport
import Testing

@Suite("A codec with a bug", .timeLimit(.minutes(30)), .serialized)
struct PlantedBugTests {
  /// How many images crash their decoder process, and how many of these make it hang instead.
  private static let (crashes, hanging) =
    ProcessInfo.processInfo.environment["LONG_TESTS"] == "1" ? (10_000, 100) : (100, 1)

  @Test(
    "images that trigger the bug fail separately, and all others succeed without a restart"
  )
  func storm() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let (crashing, hanging) = (
      Self.jpeg(width: UInt16(PLANTED_CRASH_WIDTH)), Self.jpeg(width: UInt16(PLANTED_HANG_WIDTH))
    )
    for (path, image) in [
      ("/good.jpg", Fixtures.smallJPEG), ("/photo.jpg", Fixtures.jpeg), ("/crash.jpg", crashing),
      ("/hang.jpg", hanging),
    ] { origin.on(path, .ok(image, type: "image/jpeg")) }
    try await withPlantedService { service in
      let calm = try await Self.jobs(of: service) {
        origin.url("/\($0 % 5 == 0 ? "photo" : "good").jpg?\($0)")
      }
      #expect(calm.failures.isEmpty)

      let rough = try await Self.jobs(of: service) { number in
        let isHanging = number % (Self.crashes / Self.hanging) == 1
        let name = number % 5 == 0 ? "photo" : isHanging ? "hang" : "crash"
        return origin.url("/\(name).jpg?again=\(number)")
      }
      let lost = Self.crashes - Self.crashes / 5
      #expect(rough.failures == [String](repeating: "decoder_crashed", count: lost))
      print(
        "p99 of \(calm.times.count) photos: \(calm.p99) with good images, \(rough.p99) with bad ones"
      )

      let metrics = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
      let ended = { (reason: String) in
        metrics.firstMatch(
          of: try Regex("imagefetch_decoders_ended_total\\{reason=\"\(reason)\"\\} (\\d+)"))?
          .output[1].substring.flatMap { Int($0) } ?? 0
      }
      // An image that fails in a process that other images used before is tried once more.
      #expect((Self.hanging...Self.hanging * 2).contains(try ended("time")))
      #expect((lost - Self.hanging...lost * 2).contains(try ended("signal")))
      #expect(service.log.contains("an image crashed its decoder"))
      #expect(service.log.contains(Self.hex(SHA256.hash(data: crashing))))
    }
  }

  private static func hex(_ digest: [UInt8]) -> String {
    digest.map { String(format: "%02x", $0) }.joined()
  }

  private static func jpeg(width: UInt16) -> [UInt8] {
    var file = JPEGFixture(Fixtures.smallJPEG)
    file.resize(width: width, height: 16)
    return file.bytes
  }

  private struct Outcome {
    /// The durations of the jobs with photos, which are a fifth of all.
    var times: [Duration] = []
    /// The failure codes.
    var failures: [String] = []

    var p99: Duration { times.sorted()[times.count * 99 / 100] }
  }

  /// Runs the jobs of eight clients. Each client runs one job at a time.
  private static func jobs(
    of service: RunningService, _ url: @escaping @Sendable (Int) -> String
  ) async throws -> Outcome {
    try await withThrowingTaskGroup { group in
      for client in 0..<8 {
        group.addTask {
          var outcome = Outcome()
          for number in stride(from: client, to: crashes, by: 8) {
            let start = ContinuousClock.now
            let job = try await service.finished(try await service.submit(url: url(number)))
            if let error = job["error"] as? [String: Any] {
              outcome.failures.append(error["code"] as? String ?? "")
            } else if number % 5 == 0 {
              outcome.times.append(ContinuousClock.now - start)
            }
          }
          return outcome
        }
      }
      var all = Outcome()
      for try await outcome in group {
        all.times += outcome.times
        all.failures += outcome.failures
      }
      return all
    }
  }
}

/// Runs the body with a service whose JPEG library has a bug. Fails if the process was restarted.
private func withPlantedService(_ body: (RunningService) async throws -> Void) async throws {
  let folder = try RunningService.makeFolder()
  defer { try? FileManager.default.removeItem(atPath: folder) }
  let service = try await RunningService(
    folder: folder,
    settings: ["IMAGEFETCH_DECODE_MAX_TIME": "1s"],
    program: BuiltProgram.path("PlantedService"))
  do { try await body(service) } catch {
    _ = try? await service.stop()
    throw error
  }
  #expect(try await service.stop() == 0)
}
