import CCodecs
import Testing

@Suite("A resampler")
struct ResamplerTests {
  private static func opens(
    _ width: UInt32 = 8, _ height: UInt32 = 8, channels: Int32 = 3, box: ResamplerBox,
    to outWidth: UInt32 = 4, _ outHeight: UInt32 = 4
  ) -> Bool {
    let resampler = resampler_open(
      width, height, channels, false, box, outWidth, outHeight, 0, .lanczos)
    let memory = resampler_memory(width, height, channels, box, outWidth, outHeight, 0)
    #expect((resampler != nil) == (memory > 0))
    resampler_close(resampler)
    return resampler != nil
  }

  @Test("a resampler can't be made if a side is 0 or the box is outside the image")
  func sides() {
    let whole = ResamplerBox(left: 0, top: 0, right: 8, bottom: 8)
    #expect(Self.opens(box: whole))
    // The last output pixel may begin within the image and end beyond it.
    #expect(Self.opens(box: ResamplerBox(left: 0, top: 0, right: 9, bottom: 9.5)))
    #expect(!Self.opens(0, 8, box: whole))
    #expect(!Self.opens(8, 0, box: whole))
    #expect(!Self.opens(box: whole, to: 0, 4))
    #expect(!Self.opens(box: whole, to: 4, 0))
    for channels in [-1, 0, 5] as [Int32] { #expect(!Self.opens(channels: channels, box: whole)) }
    for box in [
      ResamplerBox(left: 4, top: 0, right: 4, bottom: 8),
      ResamplerBox(left: 0, top: 8, right: 8, bottom: 0),
      ResamplerBox(left: -1, top: 0, right: 8, bottom: 8),
      ResamplerBox(left: 0, top: 0, right: 8, bottom: 11),
      ResamplerBox(left: 0, top: .nan, right: 8, bottom: 8),
      ResamplerBox(left: 0, top: 0, right: .infinity, bottom: 8),
    ] { #expect(!Self.opens(box: box)) }
  }
}
