import CCodecs
import TestSupport
import Testing

/// The fault after decoding a JPEG at a scale in eighths of its sides.
private func verdict(_ bytes: [UInt8], eighths: Int32, pieces: Int = .max) -> CodecFault {
  guard let reader = jpeg_reader_create(1 << 28) else { return .tooMuchMemory }
  defer { jpeg_reader_destroy(reader) }
  jpeg_reader_scale(reader, eighths)
  jpeg_reader_allow_scans(reader, 100)
  return bytes.withUnsafeBufferPointer { all in
    var (start, end) = (0, min(pieces, all.count))
    while true {
      let (isWhole, shown) = (end == all.count, all[start..<end])
      let slice = UnsafeBufferPointer(rebasing: shown)
      let step = jpeg_reader_step(reader, slice.baseAddress, slice.count, isWhole)
      start += step.consumed
      switch step.status {
      case .finished: return .none
      case .failed: return step.fault
      case .hasMore, .rows: break
      case .header:
        // A changed header could make decoding slow.
        let picture = jpeg_reader_picture(reader)
        guard UInt64(picture.width) * UInt64(picture.height) < 1 << 24 else { return .tooLarge }
      case .needsBytes: end = min(all.count, end + min(pieces, all.count))
      }
    }
  }
}

/// 0 means the smallest scale that suffices for the thumbnail, as in jobs.
private let scales: [Int32] = [0, 1, 2, 4]

@Suite("A JPEG decoded at a reduced scale")
struct ScaledDecodingTests {
  static let all = Fixtures.known.map(\.name).filter { $0.hasSuffix(".jpg") }
  static let sound = all.filter { !$0.hasPrefix("flat") }

  @Test("a valid JPEG is accepted at every scale", arguments: all)
  func whole(name: String) {
    let bytes = Fixtures.image(name)
    for eighths in scales + [8] { #expect(verdict(bytes, eighths: eighths) == .none) }
  }

  @Test("a cut JPEG is refused at every scale as at full size", arguments: sound)
  func cut(name: String) {
    let whole = Fixtures.image(name)
    // Each byte of small files; in larger files the same number of places, evenly spread.
    let apart = max(1, whole.count / 600)
    for count in stride(from: 1, to: whole.count, by: apart) {
      let part = Array(whole.prefix(count))
      let expected = verdict(part, eighths: 8)
      #expect(expected != .none || count >= whole.count - 2, "\(count) bytes")
      for eighths in scales {
        #expect(verdict(part, eighths: eighths) == expected, "\(count) bytes at \(eighths)")
      }
    }
  }

  @Test("a changed JPEG is refused at every scale as at full size", arguments: sound)
  func changed(name: String) {
    var random = SeededRandom(UInt64(name.utf8.reduce(5) { $0 &* 31 &+ UInt64($1) }))
    let seed = Fixtures.image(name)
    var refused = 0
    for _ in 0..<100 {
      let mutant = random.mutant(of: seed)
      let expected = verdict(mutant, eighths: 8)
      refused += expected == .none ? 0 : 1
      let pieces = [1_000, Int.max].randomElement(using: &random) ?? .max
      for eighths in scales {
        #expect(verdict(mutant, eighths: eighths, pieces: pieces) == expected, "at \(eighths)")
      }
    }
    #expect(refused > 20)
  }
}
