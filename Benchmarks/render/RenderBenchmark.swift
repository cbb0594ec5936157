// Renders variants with the service's renderer: each file repeatedly, from memory, on several threads, and
// prints the rate. With a folder, it writes each file's variant there once.
//
//   swift run -c release RenderBenchmark 512 512 jpeg 20 2 photo.jpg picture.png
//   swift run -c release RenderBenchmark 512 512 png 1 1 photo.jpg --into variants
//
// Or, to count instructions, repeats one kind of work: a decode without a variant, a decode that
// makes one variant or three, or a rendering.
//
//   swift run -c release RenderBenchmark proof|ahead|three|render 20 photo.jpg
import Codec
import Foundation
import Jobs

@main
enum RenderBenchmark {
  struct Picture {
    let name: String
    let bytes: [UInt8]
    let image: ImageDescription
  }

  static func main() async throws {
    var words = Array(CommandLine.arguments.dropFirst())
    var folder: String?
    if let option = words.firstIndex(of: "--into"), option + 1 < words.count {
      folder = words[option + 1]
      words.removeSubrange(option...option + 1)
    }
    if let work = words.first.flatMap(Work.init), words.count > 2, let rounds = Int(words[1]) {
      for picture in try words.dropFirst(2).map(load) {
        for _ in 0..<rounds { try work.carryOut(picture) }
      }
      return
    }
    guard words.count > 5, let width = Int(words[0]), let height = Int(words[1]),
      let format = OutputFormat(rawValue: words[2]), let rounds = Int(words[3]),
      let threads = Int(words[4])
    else {
      FileHandle.standardError.write(
        Data(
          "usage: RenderBenchmark WIDTH HEIGHT FORMAT ROUNDS THREADS FILE… [--into FOLDER]\n".utf8))
      exit(2)
    }
    var variant = Variant(format: format)
    (variant.width, variant.height) = (width, height)
    let pictures = try words.dropFirst(5).map(load)
    if let folder {
      for picture in pictures {
        let file = folder + "/" + picture.name + "." + format.rawValue
        try Data(render(picture, variant)).write(to: URL(fileURLWithPath: file))
      }
    }
    await measure(pictures, variant, rounds: rounds, threads: threads)
    let longest = try pictures.map { try longestStep($0, variant) }.max() ?? 0
    print(String(format: "longest step: %.1f CPU ms", longest))
  }

  /// The work that is repeated.
  enum Work: String {
    case proof, ahead, three, render

    func carryOut(_ picture: Picture) throws {
      let sizes =
        switch self {
        case .proof: [] as [Int]
        case .ahead, .render: [160]
        case .three: [160, 80, 40]
        }
      let variants = sizes.map { side in
        var variant = Variant(format: .jpeg)
        (variant.width, variant.height) = (side, side)
        return variant
      }
      if self == .render {
        _ = try RenderBenchmark.render(picture, variants[0])
      } else {
        try decode(picture.bytes, variants.map { VariantRequest($0) })
      }
    }

    /// Decodes in pieces, like bytes that arrive from an origin.
    private func decode(_ bytes: [UInt8], _ variants: [VariantRequest]) throws {
      let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits(), variants: variants)
      var rest = bytes[...]
      while true {
        switch try decoder.step() {
        case .finished:
          guard !decoder.variants.contains(nil) else { throw CodecError.cutShort }
          return
        case .header, .hasMore, .again: continue
        case .needsBytes:
          decoder.append(Array(rest.prefix(16_384)))
          rest = rest.dropFirst(16_384)
          if rest.isEmpty { decoder.finishInput() }
        }
      }
    }
  }

  static func load(_ path: String) throws -> Picture {
    let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
    let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits())
    decoder.append(bytes)
    decoder.finishInput()
    while true {
      guard case .finished(let image) = try decoder.step() else { continue }
      return Picture(name: URL(fileURLWithPath: path).lastPathComponent, bytes: bytes, image: image)
    }
  }

  static func render(_ picture: Picture, _ variant: Variant) throws -> [UInt8] {
    let rendering = StreamingRenderer().render(picture.bytes, of: picture.image, as: variant)
    while true {
      if let file = try rendering.file() { return file }
    }
  }

  /// CPU milliseconds, so that other programs on the machine have no influence.
  static func longestStep(_ picture: Picture, _ variant: Variant) throws -> Double {
    let rendering = StreamingRenderer().render(picture.bytes, of: picture.image, as: variant)
    var longest = 0.0
    while true {
      let start = seconds(CLOCK_THREAD_CPUTIME_ID)
      let file = try rendering.file()
      longest = max(longest, (seconds(CLOCK_THREAD_CPUTIME_ID) - start) * 1e3)
      if file != nil { return longest }
    }
  }

  static func measure(
    _ pictures: [Picture], _ variant: Variant, rounds: Int, threads: Int
  ) async {
    let start = ContinuousClock.now
    let cpu = seconds(CLOCK_PROCESS_CPUTIME_ID)
    await withTaskGroup(of: Void.self) { group in
      for _ in 0..<threads {
        group.addTask {
          for _ in 0..<rounds {
            for picture in pictures { _ = try? render(picture, variant) }
          }
        }
      }
    }
    let memory =
      pictures.map { StreamingRenderer().memory(for: variant, from: $0.image) }.max() ?? 0
    let count = Double(rounds * threads * pictures.count)
    let elapsed = (ContinuousClock.now - start) / .seconds(1)
    print(
      String(
        format: "%.1f variants/s, %.3f CPU ms a variant, %d threads, %.1f MB reserved for each",
        count / elapsed, (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e3 / count, threads,
        Double(memory) / 1e6))
  }

  static func seconds(_ clock: clockid_t) -> Double {
    var now = timespec()
    clock_gettime(clock, &now)
    return Double(now.tv_sec) + Double(now.tv_nsec) * 1e-9
  }
}
