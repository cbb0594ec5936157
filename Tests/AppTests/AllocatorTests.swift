import Foundation
import TestSupport
import Testing

@Suite("The service's allocator", .timeLimit(.minutes(15)))
struct AllocatorTests {
  @Test(
    "the process has at most eight arenas, however many threads allocate",
    .enabled(if: !Sanitizer.isHere))
  func arenas() async throws {
    try await withPipeline { service, origin in
      origin.on("/x", .ok(Fixtures.smallPNG))
      let jobs = (0..<200).map { number -> [String: Any] in
        ["url": origin.url("/x?\(number)"), "variants": [["width": 4]]]
      }
      _ = try await service.outcomes(service.post(batch: jobs))
      // The main arena has no such heap. Another arena gets a second heap only when its 64 MiB are used up.
      #expect(try service.heaps() <= 7)
    }
  }
}

extension RunningService {
  /// The number of heaps of glibc's arenas besides the main one. Such a heap is a mapping that begins at a
  /// multiple of 64 MiB, and the rest up to the next multiple is reserved.
  fileprivate func heaps() throws -> Int {
    let text = try String(contentsOfFile: "/proc/\(processIdentifier)/maps", encoding: .utf8)
    let mappings = text.matches(of: #/(?m)^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ 0 *$/#).map {
      (
        start: UInt(String($0.1), radix: 16) ?? 0, end: UInt(String($0.2), radix: 16) ?? 0,
        mode: $0.3
      )
    }
    let size: UInt = 64 << 20
    return zip(mappings, mappings.dropFirst()).count { used, reserved in
      used.mode == "rw-p" && used.start % size == 0 && reserved.mode == "---p"
        && reserved.start == used.end && reserved.end == used.start + size
    }
  }
}
