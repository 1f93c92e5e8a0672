// Where an award is found, for the pages of the cluster and of one award: its path, its page, and its certificate as a file.

/** A counter as it stands in a path; what is no text in a key is written as %XX already. */
export const counterPath = ({ namespace, key }) => `${namespace}/${key.split("%").map(encodeURIComponent).join("%")}`;

export const awardPath = (counter, at) => `/v1/awards/${counterPath(counter)}/${at}`;

/** With the token behind `#`, where this page has one. */
export function awardPage({ namespace, key }, at) {
  return `/award?counter=${encodeURIComponent(`${namespace}/${key}`)}&at=${at}${location.hash}`;
}

/** Saves a certificate that was fetched. */
export function saveCertificate(blob, at) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `certificate-${at}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}
