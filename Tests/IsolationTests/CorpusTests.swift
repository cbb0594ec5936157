import Foundation
import Jobs
import TestSupport
import Testing

/// Images of others, good and broken: `make corpora` fetches all, `make test` those that are small.
@Suite("Corpora", .timeLimit(.minutes(30)))
struct CorpusTests {
  private static var isDebian12: Bool {
    get throws {
      try String(contentsOfFile: "/etc/os-release", encoding: .utf8)
        .contains("VERSION_CODENAME=bookworm")
    }
  }

  @Test("are shown as others show them or refused as others refuse them, but for what is listed")
  func verdicts() async throws {
    let folder = try Corpora.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let (sets, files) = (try Corpora.sets(), try Corpora.files())
    #expect(files.count > (Corpora.isLong ? 3_500 : 2_750), "make corpora")
    let judged = try await Judged.all(files, in: folder)
    try Corpora.report(judged, as: "corpora")
    #expect(judged.count == files.count)
    for one in judged {
      #expect(one.unrendered == nil, "\(one.name)")
      let codes = ["success", "unsupported_format", "decode_failed", "too_many_pixels"]
      #expect(codes.contains(one.code), "\(one.name): \(one.result)")
    }
    let found = judged.compactMap { one in Difference(one).map { (one.name, $0.word) } }
    let mistakes = try ListedDifferences("corpora.txt").mistakes(in: found) { pattern in
      sets.contains { pattern.hasPrefix($0 + "/") }
    }
    // The list is of what Debian 12's programs show. Newer versions show some images in another way.
    if try Self.isDebian12 { #expect(mistakes == []) }
    #expect(judged.count { $0.verdict.isLate == true } < 6)
  }
}
