import Foundation
import Jobs
import TestSupport
import Testing

/// Randomly changed and cut images, decoded here and by other programs.
@Suite("Changed and cut images", .timeLimit(.minutes(60)))
struct DifferentialTests {
  private static func seeds(_ format: ImageFormat) throws -> [(name: String, path: String)] {
    let endings = [
      format.fileExtension, format == .heic ? "heif" : "",
    ]
    let fixtures = Corpora.folder + "../Tests/Fixtures/images/"
    let own = try FileManager.default.contentsOfDirectory(atPath: fixtures).sorted()
      .map { ($0, fixtures + $0) }
    return (own + (try Corpora.files().filter { !$0.name.contains("afl") })).filter { file in
      endings.contains((file.1 as NSString).pathExtension.lowercased())
        && (200..<60_000).contains((FileManager.default.contents(atPath: file.1) ?? Data()).count)
    }
  }

  /// Fewer files for formats whose tool starts a process per file, which takes longer than Pillow.
  private static func count(_ format: ImageFormat) -> Int {
    Corpora.isLong ? 2_000 : [.avif, .heic, .jxl].contains(format) ? 60 : 200
  }

  @Test(
    "changed and cut images have the same result as elsewhere, except listed differences",
    arguments: ImageFormat.allCases)
  func verdicts(format: ImageFormat) async throws {
    let folder = try Corpora.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let seeds = try Self.seeds(format)
    #expect(seeds.count > 3)
    var random = SeededRandom(for: format.rawValue)
    let files = try (0..<Self.count(format)).map { number in
      let seed = seeds[number % seeds.count]
      let bytes = Array(FileManager.default.contents(atPath: seed.path) ?? Data())
      let isCut = number % 4 == 0
      let mutant =
        isCut
        ? Array(bytes.prefix(Int.random(in: bytes.count / 10..<bytes.count, using: &random)))
        : random.mutant(of: bytes)
      let path = "\(folder)/mutant-\(number)"
      try Data(mutant).write(to: URL(fileURLWithPath: path))
      return (
        name: "\(format.rawValue)/\(number)-\(isCut ? "cut" : "changed")-\(seed.name)", path: path
      )
    }
    let judged = try await Judged.all(files, in: folder)
    try Corpora.report(judged, as: "mutants-\(format.rawValue)")
    for one in judged {
      #expect(one.code != FailureCode.internal.rawValue, "\(one.name)")
      if one.unrendered != nil { Issue.record("\(one.name): accepted, but cannot be rendered") }
    }
    let found = judged.compactMap { one in Difference(one).map { (Self.kind(of: one), $0.word) } }
    let mistakes = try ListedDifferences("mutants.txt").mistakes(in: found) { _ in false }
    #expect(mistakes == [])
    // Most results must be equal; otherwise the comparison would prove nothing.
    #expect(found.count < judged.count / 2, "\(found.count) of \(judged.count)")
  }

  /// The format, how the file was made, and the error of the program that refused it.
  private static func kind(of judged: Judged) -> String {
    let parts = judged.name.split(separator: "/", maxSplits: 1)
    let isCut = parts[1].contains("-cut-")
    let ours: String? = if case .failure(let error) = judged.result { "\(error)" } else { nil }
    return "\(parts[0])/\(isCut ? "cut" : "changed")/\(ours ?? judged.verdict.message ?? "")"
  }
}
