// The search looks for every word of a query. Short words of a question only hide pages, so they are left out.
const shortWords = /(^|\s)(a|an|the|of|in|on|at|to|is|are|do|does|how|what|my|i|for|with|and|or|it)(?=\s)/gi
const QUERY = 2 // what the theme calls a query among its messages to the search worker
const postMessage = Worker.prototype.postMessage

Worker.prototype.postMessage = function (message, ...rest) {
  if (message && message.type === QUERY && typeof message.data === "string") {
    const words = message.data.replace(shortWords, " ").trim()
    if (words) message = { ...message, data: words }
  }
  return postMessage.call(this, message, ...rest)
}
