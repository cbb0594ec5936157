import API
import Testing

@testable import App

@Suite("The configuration of the API")
struct ConfigurationPartsTests {
  @Test("a job's limits follow the keys, and by default the API's own limits")
  func limits() throws {
    let usual = App.Configuration().routesConfiguration
    #expect(usual.limits == API.APIConfiguration.Limits())
    // The default retention may be longer than the longest that jobs may ask for.
    let configuration = try App.Configuration.load(
      yaml: """
        jobs: { retention: 20d, max_retention: 2h }
        fetch: { timeout: 5s, max_bytes: 1KiB }
        decode: { max_pixels: 7, max_dimension: 3 }
        """, name: "f")
    var limits = API.APIConfiguration.Limits()
    limits.maxRetention = .seconds(7_200)
    limits.timeout = .seconds(5)
    limits.maxBytes = 1024
    limits.maxPixels = 7
    limits.maxDimension = 3
    let narrow = configuration.routesConfiguration
    #expect(narrow.limits == limits)
  }
}
