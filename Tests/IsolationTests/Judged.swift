import Codec
import Foundation
import Isolation
import Jobs
import TestSupport

/// Files that were decoded in the box, as the service does, and by others: see Tests/Fixtures/judge.py.
struct Judged: Sendable {
  /// What others found.
  struct Verdict: Decodable, Sendable {
    /// Whether they take the file.
    var accepts: Bool
    /// Why not.
    var said: String?
    /// Whether they had not come to an end in their time.
    var isLate: Bool?
    /// Where both took it: the most that a channel of a pixel differs by, of 255, and how much on average that of each
    /// pixel's worst channel does.
    var worst: Int?
    var mean: Double?
    /// Theirs and ours, where they are not the same.
    var sides: [Int]?
  }

  private struct Case: Encodable {
    var file: String
    var ours: String?
    var format: String?
    var orientation: Int?
  }

  var name: String
  var result: Result<ImageDescription, CodecError>
  /// Why there is no picture of an image that was taken.
  var unrendered: CodecError?
  var verdict: Verdict

  /// The contract's code, or `success`.
  var code: String {
    switch result {
    case .success: "success"
    case .failure(let error): error.code.rawValue
    }
  }

  /// - Parameter files: where they lie, by their names.
  static func all(_ files: [(name: String, path: String)], in folder: String) async throws
    -> [Judged]
  {
    let codec = IsolatedCodec()
    let lanes = 3
    var made = [(Judged, Case)?](repeating: nil, count: files.count)
    await withTaskGroup { group in
      for lane in 0..<lanes {
        group.addTask {
          stride(from: lane, to: files.count, by: lanes).map { number in
            (number, decoded(files[number], by: codec, picture: "\(folder)/\(number).png"))
          }
        }
      }
      for await some in group { for (number, one) in some { made[number] = one } }
    }
    let order = "\(folder)/cases.json"
    try JSONEncoder().encode(made.map { $0?.1 }).write(to: URL(fileURLWithPath: order))
    let verdicts = try JSONDecoder().decode(
      [Verdict].self, from: FixtureScript.run("judge.py", order))
    return zip(made, verdicts).compactMap { made, verdict in
      guard var (judged, _) = made else { return nil }
      judged.verdict = verdict
      return judged
    }
  }

  private static func decoded(
    _ file: (name: String, path: String), by codec: IsolatedCodec, picture: String
  ) -> (Judged, Case) {
    let bytes = FileManager.default.contents(atPath: file.path).map(Array.init) ?? []
    let png = Variant(format: .png)
    let decoding = Decoding(bytes, by: codec, pieces: 1 << 20, variants: [VariantRequest(png)])
    var judged = Judged(
      name: file.name, result: decoding.result, verdict: Verdict(accepts: false))
    var shown = Case(file: file.path)
    guard case .success(let image) = decoding.result else { return (judged, shown) }
    (shown.format, shown.orientation) = (image.format.rawValue, image.orientation)
    do throws(CodecError) {
      var made = decoding.variants.first ?? nil
      let rendering = codec.render(bytes, of: image, as: [png])
      while made == nil { made = try rendering.file() }
      if FileManager.default.createFile(atPath: picture, contents: made.map { Data($0) }) {
        shown.ours = picture
      }
    } catch { judged.unrendered = error }
    return (judged, shown)
  }
}
