// Fuzzes the readers of texts and messages with arbitrary bytes: they must not trap, hang or return invalid values.
// There is one program; FUZZ_TARGET selects the reader. Fuzz/run builds and runs it. Traps, failed preconditions,
// overflows and failed `expect` calls end it.
import Glibc

typealias Target = @Sendable ([UInt8]) -> Void

/// The target named by FUZZ_TARGET.
private let chosen: Target = {
  let name = getenv("FUZZ_TARGET").map { String(cString: $0) } ?? ""
  guard let target = targets[name] else { fatalError("FUZZ_TARGET: no target \(name)") }
  return target
}()

private let targets: [String: Target] = [
  "url": fuzzURL, "host": fuzzHost, "address": fuzzAddress, "range": fuzzRange, "cache": fuzzCache,
  "date": fuzzDate, "multipart": fuzzMultipart, "json": fuzzJSON, "yaml": fuzzYAML,
  "csv": fuzzLines,
  "signature": fuzzSignature, "reply": fuzzReply, "request": fuzzRequest, "exif": fuzzEXIF,
]

@_cdecl("LLVMFuzzerTestOneInput")
package func fuzzOne(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  chosen(Array(UnsafeBufferPointer(start: start, count: count)))
  return 0
}

func expect(_ isSo: Bool, _ what: @autoclosure () -> String) {
  if !isSo { fatalError("failed expectation: \(what())") }
}

/// Decodes any bytes as UTF-8.
func text(_ bytes: some Sequence<UInt8>) -> String {
  String(decoding: Array(bytes), as: UTF8.self)
}

/// Cuts the bytes in two at a place chosen by `number`. If that is 0, returns each byte separately.
func pieces(of bytes: [UInt8], by number: UInt8) -> [[UInt8]] {
  if number == 0 { return bytes.map { [$0] } }
  let cut = bytes.count * Int(number) / 256
  return [Array(bytes.prefix(cut)), Array(bytes.dropFirst(cut))]
}
