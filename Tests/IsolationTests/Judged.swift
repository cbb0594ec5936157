import Codec
import Foundation
import Isolation
import Jobs
import TestSupport

/// A file that was decoded in a decoder process, as in the service, and by another program. See
/// Tests/Fixtures/judge.py.
struct Judged: Sendable {
  /// The result of the other program.
  struct Verdict: Decodable, Sendable {
    /// Whether it accepts the file.
    var accepts: Bool
    /// Its error.
    var message: String?
    /// Whether it did not finish in time.
    var isLate: Bool?
    /// If both accept the file: the largest difference of a channel (0 to 255), and the average over all pixels of
    /// the worst channel's difference.
    var worst: Int?
    var mean: Double?
    /// The sides found by the other program and by ours, if they differ.
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
  /// Why an accepted image could not be rendered.
  var unrendered: CodecError?
  var verdict: Verdict

  /// The error code of the API, or `success`.
  var code: String {
    switch result {
    case .success: "success"
    case .failure(let error): error.code.rawValue
    }
  }

  /// - Parameter files: the paths of the files, by name.
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
