import API
import Testing

@testable import App

@Suite("What the API is told of the configuration")
struct ConfigurationPartsTests {
  @Test("has a job's own limits go as far as the keys say, and by default as far as its own")
  func limits() throws {
    let usual = App.Configuration().routesConfiguration
    #expect(usual.limits == API.Configuration.Limits())
    // Jobs that say nothing may be kept for longer than any may ask to be.
    let configuration = try App.Configuration.load(
      yaml: """
        jobs: { retention: 20d, max_retention: 2h }
        fetch: { timeout: 5s, max_bytes: 1KiB }
        decode: { max_pixels: 7, max_dimension: 3 }
        """, name: "f")
    var limits = API.Configuration.Limits()
    limits.maxRetention = .seconds(7_200)
    limits.timeout = .seconds(5)
    limits.maxBytes = 1024
    limits.maxPixels = 7
    limits.maxDimension = 3
    let narrow = configuration.routesConfiguration
    #expect(narrow.limits == limits)
  }
}
